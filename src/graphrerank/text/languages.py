"""The language of texts: which words match. Snowball's stems and stop words, or pairs of characters without spaces.

English is the default: BM25's words are not stemmed, those that features match are. In other languages both are.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from threading import local

import bm25s.stopwords
from Stemmer import Stemmer, algorithms

from graphrerank.text.characters import matched_form
from graphrerank.utils.checks import UserError

ENGLISH = "english"
AUTO = "auto"  # the language that `detect_language` finds
PLAIN = "none"  # whole words, as they are written; for languages without a stemmer
CHARACTERS = "characters"  # pairs of characters, for scripts without spaces between words
NO_STEMMERS = ("porter", "dutch_porter")  # of Snowball's algorithms, those that are second ones of a language
LANGUAGES = (ENGLISH, *(name for name in algorithms() if name not in (ENGLISH, *NO_STEMMERS)), PLAIN, CHARACTERS)
_WITH_STOP_WORDS = "danish dutch french german italian norwegian portuguese russian spanish swedish turkish"
STOP_WORDS_OF = {name: getattr(bm25s.stopwords, f"STOPWORDS_{name.upper()}") for name in _WITH_STOP_WORDS.split()}
SAMPLED_TEXTS, SAMPLED_CHARS = 200, 20_000  # that the language of a corpus is detected by
MIN_DETECTION_WORDS = 20  # by which a language is detected
SURE_SHARE = 0.15  # of the words, which the stop words of a language must be
SURE_RATIO = 1.5  # of these to those of every other language
UNSPACED_SHARE = 0.3  # of the letters
# a class of characters: Han, kana, Thai, Lao, Burmese, Khmer
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_RUN, _WORD = re.compile(r"\w+"), re.compile(r"\w\w+")
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_LOCAL = local()  # a stemmer serves one thread at a time


@dataclass(frozen=True)
class Language:
    """How the words of a text are found."""

    name: str  # `english`, another of Snowball's algorithms, `none` or `characters`
    stop_words: frozenset[str]  # in lower case, which are not matched

    def terms(self, runs: Sequence[str]) -> list[list[str]]:
        """Return what is matched of each of ``n`` runs of word characters in lower case: its stems, or its pairs."""
        if self.name == CHARACTERS:
            return [_pairs(run) for run in runs]
        kept = [run for run in runs if run not in self.stop_words]
        stems = iter(kept if self.name == PLAIN else stemmer(self.name).stemWords(kept))
        return [[next(stems)] if run not in self.stop_words else [] for run in runs]

    def tokens(self, text: str) -> list[str]:
        """Return BM25's words of a text that is not English.

        Example:
            >>> language_of("german").tokens("Die Häuser der Stadt"), language_of("characters").tokens("東京タワー")
            (['haus', 'stadt'], ['東京', '京タ', 'タワ', 'ワー'])
        """
        pattern = _RUN if self.name == CHARACTERS else _WORD
        return self.all_terms(pattern.findall(matched_form(text).lower()))

    def all_terms(self, runs: Sequence[str]) -> list[str]:
        """Return the terms of all runs, one after the other."""
        return [term for terms in self.terms(runs) for term in terms]


@cache
def language_of(name: str) -> Language:
    """Return a language by its name."""
    if name not in LANGUAGES:
        raise UserError(f"`language` must be {AUTO} or one of {list(LANGUAGES)}, got {name!r}")
    return Language(name, frozenset(STOP_WORDS_OF.get(name, ())))


def detect_language(texts: Sequence[str], *, max_chars: int = SAMPLED_CHARS) -> str:
    """Return the language of texts where their stop words are sure, else English.

    The scripts that have no spaces are ``characters``. Up to 200 texts, evenly spread, are read up to ``max_chars``
    characters in all.

    Example:
        >>> detect_language(["Der Fluss fließt durch die Stadt, die an dem Ufer liegt, und mündet in das Meer."] * 2)
        'german'
    """
    if not len(texts):
        return ENGLISH
    step, room = max(1, len(texts) // SAMPLED_TEXTS), max_chars // min(len(texts), SAMPLED_TEXTS)
    sample = "\n".join(texts[place][:room] for place in islice(range(0, len(texts), step), SAMPLED_TEXTS)).lower()
    if not sample.isascii():
        unspaced = sum(map(len, _UNSPACED.findall(sample)))
        if unspaced > UNSPACED_SHARE * max(1, sum(map(str.isalpha, sample))):
            return CHARACTERS
    words = Counter(_WORD.findall(sample))
    total = sum(words.values())
    if total < MIN_DETECTION_WORDS:
        return ENGLISH
    found: Counter[str] = Counter()
    languages = _languages_by_word()
    for word, count in words.items():
        for language in languages.get(word, ()):
            found[language] += count
    (best, most), (_, second) = (found + Counter({ENGLISH: 1, PLAIN: 1})).most_common(2)
    sure = most >= SURE_SHARE * total and most >= SURE_RATIO * second
    return best if sure and best != PLAIN else ENGLISH


@cache
def _languages_by_word() -> dict[str, list[str]]:
    languages: dict[str, list[str]] = {}
    for name, words in {ENGLISH: bm25s.stopwords.STOPWORDS_EN_PLUS, **STOP_WORDS_OF}.items():
        for word in set(words):
            languages.setdefault(word, []).append(name)
    return languages


def stemmer(name: str) -> Stemmer:
    """Return this thread's stemmer of a language."""
    stemmers: dict[str, Stemmer] = _LOCAL.__dict__
    if name not in stemmers:
        stemmers[name] = Stemmer(name)
        stemmers[name].maxCacheSize = 0  # its upkeep takes four times as long as stemming where words are new
    return stemmers[name]


def _pairs(run: str) -> list[str]:
    """Split a run of word characters into pairs of characters where its script has no spaces, else leave it."""
    terms: list[str] = []
    start = 0
    for part in _UNSPACED.finditer(run):
        terms += [run[start : part.start()]] * (part.start() - start > 1)
        characters = part[0]
        terms += [characters[place : place + 2] for place in range(max(1, len(characters) - 1))]
        start = part.end()
    return terms + [run[start:]] * (len(run) - start > 1)
