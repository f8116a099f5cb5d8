"""Names of headings after ``#``, as the tools that show Markdown make them."""

import re
from unicodedata import category, normalize

_KEPT = ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc")  # categories of the characters of words
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
        decomposed = normalize("NFKD", heading)
        toc = _NO_TOC.sub("", decomposed.encode("ascii", "ignore").decode()).strip().lower()
        signs = _SIGNS.sub("-", re.sub("[\u0300-\u036f]", "", decomposed)).strip("-").lower()
        made = (
            self._unique(github_slug(heading), "-", self._github),
            self._unique(_TOC_SPACES.sub("-", toc), "_", self._toc),
            self._unique(re.sub(r"^(?=\d)", "_", signs), "-", self._vitepress),
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
    kept = "".join(each for each in heading if each in "- " or category(each) in _KEPT)
    return kept.lower().replace(" ", "-")
