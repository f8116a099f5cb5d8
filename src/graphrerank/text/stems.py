"""Words of a text as stems, and a passage's lead: what a query's words are matched with."""

import re
from collections.abc import Sequence

from graphrerank.text.characters import matched_form
from graphrerank.text.languages import ENGLISH, language_of, stemmer

# Words that say nothing about a sentence's subject.
_STOP_WORDS = (
    "a about after all also an and any are as at be because been before both but by can did do does each every for from"
    " had has have he her his how i if in into is it its me more most no not of on only or other our out over same she"
    " some such than that the their them then there these they this those to under up was we were what when where which"
    " while who whom whose why will with you your"
)
STOP_WORDS = frozenset(_STOP_WORDS.split())

_WORD = re.compile(r"[^\W_]+")
_WITHIN_COMPOUND = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])")
_END_OF_LEAD = re.compile(r"[.!?:;](?:\s|$)|\n")


def words(text: str, language: str = ENGLISH) -> list[str]:
    """Split a text into stems of lower-case words without stop words; compounds also give their parts.

    Stems and stop words are those of the language (:mod:`~graphrerank.text.languages`). Compounds are names such as
    ``shippedDate``, ``HTTPServer`` and ``top10``.

    Example:
        >>> words("Which cities have the most bus_stops by shippedDate?")
        ['citi', 'bus', 'stop', 'shippedd', 'ship', 'date']
    """
    lowered = [word.lower() for word in spelled_words(text)]
    if language != ENGLISH:
        return language_of(language).all_terms(lowered)
    return stems([word for word in lowered if word not in STOP_WORDS])


def spelled_words(text: str) -> list[str]:
    """Split a text into words as they are spelled, each compound followed by its parts."""
    spelled: list[str] = []
    for word in _WORD.findall(matched_form(text)):
        if word.isalpha() and word[1:].islower():  # most words, which the expression would leave whole
            spelled.append(word)
        else:
            parts = _WITHIN_COMPOUND.split(word)
            spelled += [word, *parts] if len(parts) > 1 else [word]
    return spelled


def stems(plain: Sequence[str]) -> list[str]:
    """Return Snowball's English stem of each lower-case word."""
    stemmed: list[str] = stemmer(ENGLISH).stemWords(plain)
    return stemmed


def lead(text: str) -> str:
    """Return a passage's first sentence, which is its title if it has one."""
    end = _END_OF_LEAD.search(text)
    return text if end is None else text[: end.start()]
