"""Patterns of ``.gitignore`` files, and of the options ``--exclude`` and ``--include``, which have the same syntax.

The files are untrusted: a pattern is never a regular expression with nested repetitions, and the number and length of
patterns are bounded, so that the time is proportional to the number of patterns and files.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

IGNORE_FILE = ".gitignore"
#: Maximum number of bytes of an ignore file to read. The rest is ignored.
MAX_BYTES = 64_000
_MAX_COMPONENT = 1000  # maximum length of a component of a pattern; patterns with longer ones are ignored
_DEEP = "**"  # component that stands for any number of folders


@dataclass(frozen=True, slots=True)
class IgnoreRule:
    """Pattern of an ignore file.

    Attributes:
        text: Pattern as written.
        components: Components of the path. ``**`` stands for any number of folders.
        is_negated: Whether the pattern includes what earlier patterns exclude (``!``).
        is_folder: Whether the pattern matches folders only (a trailing ``/``).
    """

    text: str
    components: tuple[str, ...]
    is_negated: bool = False
    is_folder: bool = False

    def matches(self, path: str, *, is_folder: bool) -> bool:
        """Return whether the pattern matches a path.

        Args:
            path: Path relative to the folder of the ignore file.
            is_folder: Whether the path is a folder.
        """
        return (is_folder or not self.is_folder) and _match(self.components, path.split("/"))


def parse_rules(lines: Iterable[str]) -> tuple[IgnoreRule, ...]:
    """Parse patterns in the syntax of ``.gitignore``.

    Args:
        lines: Lines of an ignore file. Empty lines and comments are skipped.

    Returns:
        Rules in order. The last matching one decides.

    Example:
        >>> [rule.components for rule in parse_rules(["# built", "/dist/", "*.log", "docs/**/draft"])]
        [('dist',), ('**', '*.log'), ('docs', '**', 'draft')]
    """
    rules = []
    for line in lines:
        text = re.sub(r"(?<!\\)[ \t\r]+\Z", "", line.rstrip("\r\n"))
        pattern = text.removeprefix("!")
        if not pattern.strip("/") or text.startswith("#"):
            continue
        bare = pattern.rstrip("/")
        components = [_DEEP if re.fullmatch(r"\*{2,}", part) else part for part in bare.split("/") if part]
        if "/" not in bare:
            components.insert(0, _DEEP)
        if max(map(len, components)) <= _MAX_COMPONENT:
            rules.append(IgnoreRule(text, tuple(components), text != pattern, bare != pattern))
    return tuple(rules)


class IgnoreRules:
    """Rules of the ignore files in a folder and its parents.

    Rules of deeper folders take precedence over those of their parents, and later rules over earlier ones.

    Args:
        files: Folder of each ignore file relative to the source, with its rules, from the top down. A folder above the
            source is written as the empty path, and the paths of the source below it as ``prefix``.
        prefix: Path of the source relative to the folder to which all rules refer, for ignore files above the source.
    """

    def __init__(self, files: Sequence[tuple[str, tuple[IgnoreRule, ...]]] = (), *, prefix: str = "") -> None:
        self._files, self._prefix = tuple(files), prefix

    def below(self, folder: str, rules: tuple[IgnoreRule, ...]) -> "IgnoreRules":
        """Return these rules together with the rules of a subfolder.

        Args:
            folder: Path of the folder, relative to the source.
            rules: Rules of its ignore file.
        """
        return IgnoreRules([*self._files, (self._joined(folder), rules)], prefix=self._prefix) if rules else self

    def excludes(self, path: str, *, is_folder: bool) -> bool:
        """Return whether a path is ignored. Its parent folders must not be.

        Args:
            path: Path of a file or folder, relative to the source.
            is_folder: Whether the path is a folder.
        """
        whole = self._joined(path)
        for folder, rules in reversed(self._files):
            if folder and not whole.startswith(f"{folder}/"):
                continue
            inner = whole[len(folder) + 1 :] if folder else whole
            for rule in reversed(rules):
                if rule.matches(inner, is_folder=is_folder):
                    return not rule.is_negated
        return False

    def _joined(self, path: str) -> str:
        return "/".join(filter(None, (self._prefix, path)))


def _match(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Match the components of a pattern, backtracking to the last ``**`` only."""
    position = start = 0
    deep = -1  # index of the last `**` in the pattern
    while start < len(parts):
        if position < len(pattern) and pattern[position] == _DEEP:
            if position == len(pattern) - 1:
                return True  # at least one component is left
            deep, mark = position, start
            position += 1
        elif position < len(pattern) and _component(pattern[position]).match(parts[start]):
            position, start = position + 1, start + 1
        elif deep >= 0:
            mark += 1
            position, start = deep + 1, mark
        else:
            return False
    return position == len(pattern)


@lru_cache(maxsize=1 << 14)
def _component(text: str) -> re.Pattern[str]:
    """Compile a component of a pattern. Each ``*`` matches the shortest run and is never tried again."""
    text = re.sub(r"\\(.)", lambda found: f"[{found[1]}]" if found[1] in "*?[" else found[1], text)
    return re.compile(translate(re.sub(r"\[\^", "[!", text)))
