"""Sentence splitting by punctuation, for any script."""

import re
from itertools import pairwise

Span = tuple[int, int]

_END = re.compile(r"""[.!?…]+["'”’)\]]*(?=\s)|[。！？]+[”’」』）]*|\n\s*\n""")  # noqa: RUF001
_ABBREVIATION = re.compile(  # may precede a full stop within a sentence: an initial, "e.g", a title
    r"(?<!\w)(?:[^\W\d_]|(?:[^\W\d_]\.)+[^\W\d_]|Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Col|Lt|Sgt|Capt|Gov|Sen|Rep|Hon|St|Mt|Jr|Sr"
    r"|vs|etc|cf|al|Inc|Ltd|Co|Corp|No|Nos|Vol|pp|Figs?|Eq|Sec|Ch|eds?|approx|ca"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)$"
)


def split_sentences(text: str) -> list[Span]:
    """Split a text after ``. ! ?`` before white space, after their full-width forms, and at blank lines.

    A full stop ends no sentence after an initial or a common English abbreviation, or before a lower-case letter.

    Returns:
        ``(start, stop)`` of each sentence, without surrounding white space.

    Example:
        >>> text = "Mr. J. Smith left at 5 p.m. on Monday. Why? Nobody knows."
        >>> [text[start:stop] for start, stop in split_sentences(text)]
        ['Mr. J. Smith left at 5 p.m. on Monday.', 'Why?', 'Nobody knows.']
    """
    bounds = [0, *(end.end() for end in _END.finditer(text) if _ends_sentence(text, end)), len(text)]
    stripped = (_strip(text, start, stop) for start, stop in pairwise(bounds))
    return [(start, stop) for start, stop in stripped if start < stop]


def _ends_sentence(text: str, end: re.Match[str]) -> bool:
    if not end[0].startswith((".", "…")):
        return True
    following = text[end.end() : end.end() + 40].lstrip()
    if following[:1].islower():
        return False
    return end[0] != "." or _ABBREVIATION.search(text[max(0, end.start() - 20) : end.start()]) is None


def _strip(text: str, start: int, stop: int) -> Span:
    part = text[start:stop]
    return start + len(part) - len(part.lstrip()), start + len(part.rstrip())
