"""The code blocks of README and docs, and the commands in them.

A comment before a block, or in a page's first line for all its blocks, says which test runs it or why none does:
``<!-- run by tests/test_extending.py -->``, ``<!-- not run: needs a cluster -->``.
"""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name not in ("api", "settings")),  # generated pages
]
MARK = r"<!-- (run by|not run:) (.+?) -->\n"
FENCE = re.compile(rf"^(?:{MARK})?```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:PYTHONPATH=\. )?(?:python \w+(?:/\w+)?\.py|graphrerank [a-z]+)\b[^`]*)`")
SHELL = ""  # the language of commands; what they print is `text`


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path  # from the repository's root
    line: int  # where it begins, from 1
    language: str
    code: str
    run_by: Path | None  # the test file that runs it; None for ``tests/test_pages.py``
    not_run: str | None  # why nothing runs it

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page; not those that Sphinx reads, like ``{toctree}``."""
    text = page.read_text(encoding="utf-8")
    whole = re.match(MARK, text)  # the first line is the mark of all blocks
    for found in FENCE.finditer(text):
        kind, said, language, code = found.groups()
        if language.startswith("{"):
            continue
        if whole and kind is None:
            kind, said = whole.groups()
        yield Block(
            page.relative_to(ROOT),
            text[: found.start(4)].count("\n"),
            language,
            code,
            ROOT / said if kind == "run by" else None,
            said if kind == "not run:" else None,
        )


def inline_commands(page: Path) -> list[str]:
    """List the commands of a page's text that stand between backticks; none of a page that something else runs."""
    text = page.read_text(encoding="utf-8")
    if re.match(MARK, text):
        return []
    text = FENCE.sub("", text)
    return [" ".join(command.split()) for command in INLINE.findall(text)]


def commands_of(code: str) -> Iterator[list[str]]:
    r"""Yield the words of each command.

    Example:
        >>> list(commands_of("A=b python x.py \\\n  a='b c' && pytest # all\ncurl -d '{\n}'"))
        [['python', 'x.py', 'a=b c'], ['pytest'], ['curl', '-d', '{\n}']]
    """
    held = ""
    for line in code.replace("\\\n", " ").splitlines():
        held += line
        try:
            words = shlex.split(held, comments=True)
        except ValueError:  # within quotes
            held += "\n"
            continue
        held = ""
        while words:
            end = words.index("&&") if "&&" in words else len(words)
            command, words = words[:end], words[end + 1 :]
            while command and re.match(r"[A-Z_]+=", command[0]):
                del command[0]
            yield command
