"""Names of headings after ``#``, as the tools that show Markdown make them."""

import re
from unicodedata import category, normalize

_NO_WORD = re.compile(r"[^\w\- ]")
_NO_TOC = re.compile(r"[^\w\s-]")
_TOC_SPACES = re.compile(r"[-\s]+")
_SIGNS = re.compile(r"[\s~`!@#$%^&*()\-_+=\[\]{}|\\;:\"'“”‘’<>,.?/]+")  # noqa: RUF001


class Slugs:
    """The names of the headings of one document, in their order.

    Example:
        >>> slugs = Slugs()
        >>> slugs.of("C++ & Go"), slugs.of("C++ & Go")
        (['c--go', 'c-go'], ['c--go-1', 'c-go_1', 'c-go-1'])
    """

    def __init__(self) -> None:
        self._github: dict[str, int] = {}  # the names that are made -> the number of the last one that repeats it
        self._toc: dict[str, int] = {}
        self._vitepress: dict[str, int] = {}

    def of(self, heading: str) -> list[str]:
        """Return GitHub's name for the next heading, then those of Python-Markdown and VitePress where they differ."""
        toc = _TOC_SPACES.sub("-", _NO_TOC.sub("", _ascii(heading)).strip().lower())
        sign = _SIGNS.sub("-", _without_marks(heading)).strip("-").lower()
        made = (
            self._unique(github_slug(heading), "-", self._github),
            self._unique(toc, "_", self._toc),
            self._unique(re.sub(r"^(?=\d)", "_", sign), "-", self._vitepress),
        )
        return list(dict.fromkeys(filter(None, made)))

    @staticmethod
    def _unique(slug: str, separator: str, counts: dict[str, int]) -> str:
        name, count = slug, counts.get(slug, 0)
        while name in counts:
            count += 1
            name = f"{slug}{separator}{count}"
        counts[slug] = count
        counts.setdefault(name, 0)
        return name


def github_slug(heading: str) -> str:
    """Return the name of a heading in plain text on GitHub, without the number of a repeated one.

    Example:
        >>> github_slug("What's new in 2.0?")
        'whats-new-in-20'
    """
    kept = _NO_WORD.sub("", heading) if heading.isascii() else "".join(filter(_is_kept, heading))
    return kept.lower().replace(" ", "-")


def _is_kept(character: str) -> bool:
    return character in "- " or category(character)[0] in "LM" or category(character) in ("Nd", "Nl", "Pc")


def _ascii(text: str) -> str:
    return text if text.isascii() else normalize("NFKD", text).encode("ascii", "ignore").decode()


def _without_marks(text: str) -> str:
    return text if text.isascii() else "".join(c for c in normalize("NFKD", text) if not "\u0300" <= c <= "\u036f")
