"""Sentence splitting by punctuation, for any script."""

import re
from functools import cache
from itertools import pairwise

from graphrerank.text.languages import ENGLISH

Span = tuple[int, int]

_END = re.compile(r"""[.!?…]+["'”’)\]]*(?=\s)|[。！？]+[”’」』）]*|\n\s*\n""")  # noqa: RUF001
_INITIALS = r"[^\W\d_]|(?:[^\W\d_]\.)+[^\W\d_]"  # matches initials, "e.g" and "z.B"
#: Abbreviations whose full stop does not end a sentence: titles, months and references.
_ABBREVIATIONS = {
    ENGLISH: "Mr|Mrs|Ms|Dr|Prof|Rev|Gen|Col|Lt|Sgt|Capt|Gov|Sen|Rep|Hon|St|Mt|Jr|Sr"
    "|vs|etc|cf|al|Inc|Ltd|Co|Corp|No|Nos|Vol|pp|Figs?|Eq|Sec|Ch|eds?|approx|ca"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec",
    "german": "Hr|Fr|Dr|Prof|Dipl|Ing|St|Nr|Abs|Art|Abb|Tab|Kap|Bd|Jh|Mio|Mrd|bzw|usw|vgl|ca|evtl|ggf|inkl|sog|etc|bspw"
    r"|Jan|Feb|Apr|Jun|Jul|Aug|Sept?|Okt|Nov|Dez|\d{1,2}",  # ordinal numbers, as in "3. Oktober"
    "french": "M|MM|Mme|Mlle|Dr|Pr|St|Ste|art|av|apr|env|etc|cf|chap|fig|vol|janv|févr|avr|juill|sept|oct|nov|déc",
    "spanish": "Sr|Sra|Srta|Dr|Dra|Ud|Uds|Prof|Av|núm|págs?|art|etc|cap|fig|vol|aprox|ene|feb|abr|ago|oct|nov|dic",
    "italian": "Sig|Sigg|Dott|Prof|Avv|Ing|On|art|ecc|cfr|cap|fig|vol|pag|gen|feb|apr|giu|lug|ago|sett?|ott|nov|dic",
    "portuguese": "Sr|Sra|Dr|Dra|Prof|Av|núm|pág|art|etc|cap|fig|vol|jan|fev|abr|ago|set|out|nov|dez",
    "dutch": "dhr|mevr|dr|prof|drs|ir|mr|bijv|blz|enz|etc|nr|art|fig|jan|feb|apr|aug|sept?|okt|nov|dec",
}


def split_sentences(text: str, language: str = ENGLISH) -> list[Span]:
    """Split a text into sentences.

    A sentence ends after ``.``, ``!``, ``?`` or ``…`` before white space, after a full-width form of these, or at a
    blank line. A full stop does not end a sentence after an initial or a common abbreviation of the language, or before
    a lower-case letter.

    Args:
        text: Text to split.
        language: Language of the text, which selects the abbreviations (see :mod:`~graphrerank.text.languages`).

    Returns:
        Positions ``(start, stop)`` of each sentence in the text, without surrounding white space.

    Example:
        >>> text = "Mr. J. Smith left at 5 p.m. on Monday. Why? Nobody knows."
        >>> [text[start:stop] for start, stop in split_sentences(text)]
        ['Mr. J. Smith left at 5 p.m. on Monday.', 'Why?', 'Nobody knows.']
    """
    bounds = [0, *(end.end() for end in _END.finditer(text) if _ends_sentence(text, end, language)), len(text)]
    stripped = (_strip(text, start, stop) for start, stop in pairwise(bounds))
    return [(start, stop) for start, stop in stripped if start < stop]


def _ends_sentence(text: str, end: re.Match[str], language: str) -> bool:
    if not end[0].startswith((".", "…")):
        return True
    following = text[end.end() : end.end() + 40].lstrip()
    if following[:1].islower():
        return False
    return end[0] != "." or _abbreviation(language).search(text[max(0, end.start() - 20) : end.start()]) is None


@cache
def _abbreviation(language: str) -> re.Pattern[str]:
    abbreviations = f"|{_ABBREVIATIONS[language]}" if language in _ABBREVIATIONS else ""
    return re.compile(rf"(?<!\w)(?:{_INITIALS}{abbreviations})$")


def _strip(text: str, start: int, stop: int) -> Span:
    sentence = text[start:stop]
    return start + len(sentence) - len(sentence.lstrip()), start + len(sentence.rstrip())
