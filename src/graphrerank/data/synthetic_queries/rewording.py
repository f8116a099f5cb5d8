"""Rewording of drafted questions, so that their words do not match their passages', without lists from elsewhere."""

import random
import re
from collections.abc import Callable, Collection, Iterable

from graphrerank.data.synthetic_queries.wording import QuestionWriter, templates_of
from graphrerank.text.languages import CHARACTERS, ENGLISH, PLAIN, stemmer

MAX_CHANGES = 3
MIN_TYPO_LETTERS = 6  # letters of a word that may have a typing error
MAX_BOUNDARIES = 10  # of words, which each have two, or of characters, of what has a synonym
MIN_WORDS_LEFT = 4  # words after the first one of a question that others may be left out of
WORD_ENDINGS = {"s", "es", "e", "n", "en", "er"}  # by which forms of a word may differ; in English the first two

_ABBREVIATED = re.compile(r"((?:[A-Za-z][\w-]* ){1,5})\(([A-Z]{2,6})s?\)")
_COMPOUND = re.compile(r"(?<=[a-z]{3})(?=[A-Z][a-z]{2})|(?<=[^\W_])[-_.](?=[^\W_])")
_LETTERS = re.compile(r"[^\W\d_]+")


class Rewording:
    """Changes words of a question as somebody who does not know the passage would.

    Synonyms, abbreviations that the corpus explains in parentheses, other words of a stem, names in parts, a word left
    out, and a typing error; up to three of these. Without spaces between words, synonyms alone.
    """

    def __init__(self, language: str, texts: Iterable[str], words: Collection[str], writer: QuestionWriter) -> None:
        self.stop_words, self.breaks = writer.stop_words, writer.breaks
        self.endings = {"s", "es"} if language == ENGLISH else WORD_ENDINGS
        self.others: dict[str, list[str]] = {}
        groups = [entry.replace("_", " ").split("|") for entry in templates_of(language).synonyms.split()]
        for before, short in (found for text in texts for found in _ABBREVIATED.findall(text)):
            long = before.split()[-len(short) :]
            if "".join(word[0].upper() for word in long) == short:
                groups.append([short, " ".join(long)])
        for group in groups:
            for word in group:
                known = self.others.setdefault(word.lower(), [])
                known += [other for other in group if other != word and other not in known]
        self.boundary = re.compile("" if language == CHARACTERS else r"\b")
        self.changes: list[Callable[[str, random.Random], str]] = [self._synonym, self._synonym]
        if language != CHARACTERS:
            self.changes += [self._form, self._name_in_parts, self._shorter, self._mistyped]
        self.stem_of: dict[str, str] = {}
        if language not in (CHARACTERS, PLAIN):
            spelled = sorted(word for word in words if word.isalpha() and len(word) > 3)
            self.stem_of = dict(zip(spelled, stemmer(language).stemWords(spelled), strict=True))
        self.of_stem: dict[str, list[str]] = {}
        for word, stem in self.stem_of.items():
            self.of_stem.setdefault(stem, []).append(word)

    def __call__(self, text: str, rng: random.Random) -> str:
        """Return the question with one to three changes, or as it is where none fits."""
        left = rng.randint(1, MAX_CHANGES)
        for change in rng.sample(self.changes, len(self.changes)):
            changed = change(text, rng)
            left -= changed != text
            text = changed
            if not left:
                break
        return text

    def _synonym(self, text: str, rng: random.Random) -> str:
        ends = [match.start() for match in self.boundary.finditer(text)]
        parts = ((start, stop) for at, start in enumerate(ends) for stop in ends[at + 1 : at + MAX_BOUNDARIES])
        found = [(start, stop) for start, stop in parts if text[start:stop].lower() in self.others]
        if not found:
            return text
        start, stop = rng.choice(found)
        return text[:start] + rng.choice(self.others[text[start:stop].lower()]) + text[stop:]

    def _form(self, text: str, rng: random.Random) -> str:
        """Replace a word by its plural or singular, or whatever else another ending makes of its stem."""
        found = []
        for match in _LETTERS.finditer(text):
            word = match[0].lower()
            forms = self.of_stem.get(self.stem_of.get(word, ""), ()) if word not in self.breaks else ()
            ends = {form: {form.removeprefix(word), word.removeprefix(form)} for form in forms}
            found += [(match, form) for form in forms if ends[form] & self.endings]
        return _replaced(text, *rng.choice(found)) if found else text

    def _name_in_parts(self, text: str, rng: random.Random) -> str:
        changed = _COMPOUND.sub(" ", text)
        return changed.lower() if changed != text else text

    def _shorter(self, text: str, rng: random.Random) -> str:
        """Leave out the stop words after the first word, or one of the other words where there is none."""
        first, *words = text.split()
        kept = [word for word in words if word.lower() not in self.stop_words]
        if len(kept) < MIN_WORDS_LEFT:
            return text
        if len(kept) == len(words):
            del kept[rng.randrange(len(kept))]
        return " ".join([first, *kept])

    def _mistyped(self, text: str, rng: random.Random) -> str:
        """Exchange two letters of a long word, leave one out, or double it."""
        found = [match for match in _LETTERS.finditer(text) if len(match[0]) >= MIN_TYPO_LETTERS]
        if not found:
            return text
        match = rng.choice(found)
        word, at = match[0], rng.randrange(1, len(match[0]) - 1)
        first, second = word[at], word[at + 1]
        mistyped = rng.choice((second + first, second, first + first + second))
        return _replaced(text, match, word[:at] + mistyped + word[at + 2 :])


def _replaced(text: str, match: re.Match[str], other: str) -> str:
    return text[: match.start()] + other + text[match.end() :]
