"""Stems of the words of a text, and the first sentence of a passage. Text-match features compare them with queries."""

import re
from collections.abc import Sequence

from graphrerank.text.characters import matched_form
from graphrerank.text.languages import ENGLISH, language_of, stemmer

# Function words, which do not describe the subject of a sentence.
_STOP_WORDS = (
    "a about after all also an and any are as at be because been before both but by can did do does each every for from"
    " had has have he her his how i if in into is it its me more most no not of on only or other our out over same she"
    " some such than that the their them then there these they this those to under up was we were what when where which"
    " while who whom whose why will with you your"
)
#: English stop words of the text-match features.
STOP_WORDS = frozenset(_STOP_WORDS.split())

_WORD = re.compile(r"[^\W_]+")
_WITHIN_COMPOUND = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=[0-9])")
_END_OF_LEAD = re.compile(r"[.!?:;](?:\s|$)|\n")


def words(text: str, language: str = ENGLISH) -> list[str]:
    """Return the stems of the words of a text, in lower case and without stop words.

    A compound such as ``shippedDate``, ``HTTPServer`` or ``top10`` is followed by the stems of its parts.

    Args:
        text: Text to split into words.
        language: Language of the text, which selects stemmer and stop words (see :mod:`~graphrerank.text.languages`).

    Example:
        >>> words("Which cities have the most bus_stops by shippedDate?")
        ['citi', 'bus', 'stop', 'shippedd', 'ship', 'date']
    """
    lowered = [word.lower() for word in spelled_words(text)]
    if language != ENGLISH:
        return language_of(language).all_terms(lowered)
    return stems([word for word in lowered if word not in STOP_WORDS])


def spelled_words(text: str) -> list[str]:
    """Return the words of a text in their original spelling, each compound followed by its parts.

    Args:
        text: Text to split into words.
    """
    spelled: list[str] = []
    for word in _WORD.findall(matched_form(text)):
        if word.isalpha() and word[1:].islower():  # fast path for words that are no compounds
            spelled.append(word)
        else:
            parts = _WITHIN_COMPOUND.split(word)
            spelled += [word, *parts] if len(parts) > 1 else [word]
    return spelled


def stems(plain: Sequence[str]) -> list[str]:
    """Return the English Snowball stem of each word.

    Args:
        plain: Words in lower case.
    """
    stemmed: list[str] = stemmer(ENGLISH).stemWords(plain)
    return stemmed


def lead(text: str) -> str:
    """Return the first sentence of a passage, which is its title if it has one.

    Args:
        text: Text of the passage.
    """
    end = _END_OF_LEAD.search(text)
    return text if end is None else text[: end.start()]
