"""Languages: stop words, Snowball stemmers, and character pairs for scripts without spaces.

The default is English, in which words are stemmed for text-match features but not for BM25. In other languages, words
are stemmed for both.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from threading import local
from typing import Any

from Stemmer import Stemmer, algorithms

from graphrerank.text.characters import matched_form
from graphrerank.utils.checks import UserError

#: Name of the default language.
ENGLISH = "english"
#: Setting that detects the language with :func:`detect_language`.
AUTO = "auto"
#: Setting that matches whole words without stemming, for languages without a stemmer.
PLAIN = "none"
#: Setting that matches pairs of characters, for scripts without spaces between words.
CHARACTERS = "characters"
#: Alternative stemming algorithms of Snowball for languages that have another one.
NO_STEMMERS = ("porter", "dutch_porter")
#: Names of all supported languages.
LANGUAGES = (ENGLISH, *(name for name in algorithms() if name not in (ENGLISH, *NO_STEMMERS)), PLAIN, CHARACTERS)
_WITH_STOP_WORDS = "danish dutch french german italian norwegian portuguese russian spanish swedish turkish"
#: Largest number of texts and of characters from which the language of a corpus is detected.
SAMPLED_TEXTS, SAMPLED_CHARS = 200, 20_000
#: Smallest number of words from which a language is detected.
MIN_DETECTION_WORDS = 20
#: Smallest fraction of the words that must be stop words of a language to detect it.
SURE_SHARE = 0.15
#: Smallest ratio of the number of its stop words to the number of stop words of any other language.
SURE_RATIO = 1.5
#: Fraction of the letters in scripts without spaces from which ``characters`` is detected.
UNSPACED_SHARE = 0.3
#: Characters of scripts without spaces, for a regular expression: Han, kana, Thai, Lao, Burmese and Khmer.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"

_RUN, _WORD = re.compile(r"\w+"), re.compile(r"\w\w+")
_UNSPACED = re.compile(f"[{UNSPACED}]+")
_LOCAL = local()  # stemmers are not thread-safe


@dataclass(frozen=True)
class Language:
    """Rules that turn a text into terms.

    Attributes:
        name: Name of a Snowball stemmer such as ``english``, or ``none`` or ``characters``.
        stop_words: Words in lower case that are ignored.
    """

    name: str
    stop_words: frozenset[str]

    def terms(self, runs: Sequence[str]) -> list[list[str]]:
        """Return the terms of each run of word characters: its stem, or its pairs of characters.

        Args:
            runs: ``n`` runs of word characters in lower case.

        Returns:
            Terms of each run. Empty for stop words.
        """
        if self.name == CHARACTERS:
            return [_pairs(run) for run in runs]
        content_words = [run for run in runs if run not in self.stop_words]
        stems = iter(content_words if self.name == PLAIN else stemmer(self.name).stemWords(content_words))
        return [[next(stems)] if run not in self.stop_words else [] for run in runs]

    def tokens(self, text: str) -> list[str]:
        """Return the BM25 tokens of a text. English texts are tokenised by ``bm25s`` instead.

        Args:
            text: Text in this language.

        Example:
            >>> language_of("german").tokens("Die Häuser der Stadt"), language_of("characters").tokens("東京タワー")
            (['haus', 'stadt'], ['東京', '京タ', 'タワ', 'ワー'])
        """
        pattern = _RUN if self.name == CHARACTERS else _WORD
        return self.all_terms(pattern.findall(matched_form(text).lower()))

    def all_terms(self, runs: Sequence[str]) -> list[str]:
        """Return the terms of all runs in one list.

        Args:
            runs: Runs of word characters in lower case.
        """
        return [term for terms in self.terms(runs) for term in terms]


@cache
def stop_words_by_language() -> dict[str, list[str]]:
    """Return the stop words of each language that has them, except English, for which ``bm25s`` removes them itself.

    They are imported when they are needed, because a process that only reads documents starts twice as fast without
    ``bm25s``.
    """
    import bm25s.stopwords

    return {name: list(getattr(bm25s.stopwords, f"STOPWORDS_{name.upper()}")) for name in _WITH_STOP_WORDS.split()}


def __getattr__(name: str) -> Any:
    if name == "STOP_WORDS_OF":  # name of the stop words up to 0.4
        return stop_words_by_language()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def language_of(name: str) -> Language:
    """Return the language with a given name.

    Args:
        name: One of ``LANGUAGES``.

    Raises:
        UserError: If the name is unknown.
    """
    if name not in LANGUAGES:
        raise UserError(f"`language` must be {AUTO} or one of {list(LANGUAGES)}, got {name!r}")
    return Language(name, frozenset(stop_words_by_language().get(name, ())))


def detect_language(texts: Sequence[str], *, max_chars: int = SAMPLED_CHARS) -> str:
    """Detect the language of texts by their stop words.

    At most 200 texts are sampled at regular intervals.

    Args:
        texts: Texts in one language.
        max_chars: Largest number of characters to sample in total.

    Returns:
        Name of the language. ``characters`` for scripts without spaces, and English if the language is uncertain.

    Example:
        >>> detect_language(["Der Fluss fließt durch die Stadt, die an dem Ufer liegt, und mündet in das Meer."] * 2)
        'german'
    """
    if not len(texts):
        return ENGLISH
    step, room = max(1, len(texts) // SAMPLED_TEXTS), max_chars // min(len(texts), SAMPLED_TEXTS)
    sample = "\n".join(texts[index][:room] for index in islice(range(0, len(texts), step), SAMPLED_TEXTS)).lower()
    if not sample.isascii():
        unspaced = sum(map(len, _UNSPACED.findall(sample)))
        if unspaced > UNSPACED_SHARE * max(1, sum(map(str.isalpha, sample))):
            return CHARACTERS
    words = Counter(_WORD.findall(sample))
    total = sum(words.values())
    if total < MIN_DETECTION_WORDS:
        return ENGLISH
    stop_words: Counter[str] = Counter()
    languages = _languages_by_word()
    for word, count in words.items():
        for language in languages.get(word, ()):
            stop_words[language] += count
    (best, most), (_, second) = (stop_words + Counter({ENGLISH: 1, PLAIN: 1})).most_common(2)
    sure = most >= SURE_SHARE * total and most >= SURE_RATIO * second
    return best if sure and best != PLAIN else ENGLISH


@cache
def _languages_by_word() -> dict[str, list[str]]:
    from bm25s.stopwords import STOPWORDS_EN_PLUS

    languages: dict[str, list[str]] = {}
    for name, words in {ENGLISH: STOPWORDS_EN_PLUS, **stop_words_by_language()}.items():
        for word in set(words):
            languages.setdefault(word, []).append(name)
    return languages


def stemmer(name: str) -> Stemmer:
    """Return the stemmer of a language for this thread.

    Args:
        name: Name of a Snowball stemmer.
    """
    stemmers: dict[str, Stemmer] = _LOCAL.__dict__
    if name not in stemmers:
        stemmers[name] = Stemmer(name)
        stemmers[name].maxCacheSize = 0  # for new words, maintaining the cache takes four times as long as stemming
    return stemmers[name]


def _pairs(run: str) -> list[str]:
    """Split a run: scripts without spaces into pairs of characters, and other scripts into whole words."""
    terms: list[str] = []
    start = 0
    for match in _UNSPACED.finditer(run):
        terms += [run[start : match.start()]] * (match.start() - start > 1)
        characters = match[0]
        terms += [characters[index : index + 2] for index in range(max(1, len(characters) - 1))]
        start = match.end()
    return terms + [run[start:]] * (len(run) - start > 1)
