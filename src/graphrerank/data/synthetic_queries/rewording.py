"""Rewording of drafted questions, so that their words differ from those of their passages."""

import random
import re
from collections.abc import Callable, Collection, Iterable

from graphrerank.data.synthetic_queries.wording import QuestionWriter, templates_of
from graphrerank.text.languages import CHARACTERS, ENGLISH, PLAIN, stemmer

MAX_CHANGES = 3  # Maximum number of changes per question.
MIN_TYPO_LETTERS = 6  # Minimum number of letters of a misspelt word.
MAX_BOUNDARIES = 10  # Maximum length of an expression with a synonym, in word boundaries (two per word) or characters.
MIN_WORDS_LEFT = 4  # Minimum number of content words after the first word, for questions that are shortened.
WORD_ENDINGS = {
    "s",
    "es",
    "e",
    "n",
    "en",
    "er",
}  # Endings in which forms of a word differ. English has only "s" and "es".

_ABBREVIATED = re.compile(r"((?:[A-Za-z][\w-]* ){1,5})\(([A-Z]{2,6})s?\)")
_COMPOUND = re.compile(r"(?<=[a-z]{3})(?=[A-Z][a-z]{2})|(?<=[^\W_])[-_.](?=[^\W_])")
_LETTERS = re.compile(r"[^\W\d_]+")


class Rewording:
    """Random changes of the words of a question, as made by a person who does not know the passage.

    The changes are synonyms, abbreviations that the corpus explains in parentheses, other forms of a word, compound
    names split into words, omitted words, and typing errors. A question gets up to three of them. In languages without
    spaces between words, only synonyms are used.

    Args:
        language: Name of the language.
        texts: Texts of the corpus, in which abbreviations are searched.
        words: Words of the corpus, in lower case.
        writer: Question writer for the same language.
    """

    def __init__(self, language: str, texts: Iterable[str], words: Collection[str], writer: QuestionWriter) -> None:
        self.stop_words, self.breaks = writer.stop_words, writer.breaks
        self.endings = {"s", "es"} if language == ENGLISH else WORD_ENDINGS
        self.others: dict[str, list[str]] = {}
        groups = [entry.replace("_", " ").split("|") for entry in templates_of(language).synonyms.split()]
        for before, short in (pair for text in texts for pair in _ABBREVIATED.findall(text)):
            long = before.split()[-len(short) :]
            if "".join(word[0].upper() for word in long) == short:
                groups.append([short, " ".join(long)])
        for group in groups:
            for word in group:
                synonyms = self.others.setdefault(word.lower(), [])
                synonyms += [other for other in group if other != word and other not in synonyms]
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
        """Reword a question.

        Args:
            text: Question to reword.
            rng: Random generator.

        Returns:
            Question with one to three changes, or the same question if no change is applicable.
        """
        remaining = rng.randint(1, MAX_CHANGES)
        for change in rng.sample(self.changes, len(self.changes)):
            changed = change(text, rng)
            remaining -= changed != text
            text = changed
            if not remaining:
                break
        return text

    def _synonym(self, text: str, rng: random.Random) -> str:
        ends = [match.start() for match in self.boundary.finditer(text)]
        spans = ((start, stop) for i, start in enumerate(ends) for stop in ends[i + 1 : i + MAX_BOUNDARIES])
        replaceable = [(start, stop) for start, stop in spans if text[start:stop].lower() in self.others]
        if not replaceable:
            return text
        start, stop = rng.choice(replaceable)
        return text[:start] + rng.choice(self.others[text[start:stop].lower()]) + text[stop:]

    def _form(self, text: str, rng: random.Random) -> str:
        """Replace a word by another form with the same stem, such as its plural or singular."""
        replacements = []
        for match in _LETTERS.finditer(text):
            word = match[0].lower()
            forms = self.of_stem.get(self.stem_of.get(word, ""), ()) if word not in self.breaks else ()
            ends = {form: {form.removeprefix(word), word.removeprefix(form)} for form in forms}
            replacements += [(match, form) for form in forms if ends[form] & self.endings]
        return _replaced(text, *rng.choice(replacements)) if replacements else text

    def _name_in_parts(self, text: str, rng: random.Random) -> str:
        changed = _COMPOUND.sub(" ", text)
        return changed.lower() if changed != text else text

    def _shorter(self, text: str, rng: random.Random) -> str:
        """Omit the stop words after the first word or, if there are none, one other word."""
        first, *words = text.split()
        content_words = [word for word in words if word.lower() not in self.stop_words]
        if len(content_words) < MIN_WORDS_LEFT:
            return text
        if len(content_words) == len(words):
            del content_words[rng.randrange(len(content_words))]
        return " ".join([first, *content_words])

    def _mistyped(self, text: str, rng: random.Random) -> str:
        """Swap two letters of a long word, omit one, or double it."""
        matches = [match for match in _LETTERS.finditer(text) if len(match[0]) >= MIN_TYPO_LETTERS]
        if not matches:
            return text
        match = rng.choice(matches)
        word, index = match[0], rng.randrange(1, len(match[0]) - 1)
        first, second = word[index], word[index + 1]
        mistyped = rng.choice((second + first, second, first + first + second))
        return _replaced(text, match, word[:index] + mistyped + word[index + 2 :])


def _replaced(text: str, match: re.Match[str], other: str) -> str:
    return text[: match.start()] + other + text[match.end() :]
