"""What the extractive reader knows of a question and of the passages packed for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graphrerank.text import normalize_entity, words

YEAR = re.compile(r"\b(1\d{3}|20\d{2})\b")
_ASKED = re.compile(r"\b(who|whom|whose|when|where|which|what|how many|how|why)\b")
_YES_NO = re.compile(r"^(is|are|was|were|do|does|did|has|have|had|can|could|will)\b", re.IGNORECASE)
_NAME = re.compile(r"\b[A-ZÀ-Þ]\w+")
_CUES = frozenset(
    {"first", "earlier", "earliest", "older", "oldest", "before", "younger", "youngest", "later", "last", "latest"}
    | {"more", "recently", "newer", "longer"}
)
_TURNS = frozenset(
    ("born", "died", "die", "director", "released", "came", "established", "founded", "lived", "performer", "composer")
)
TITLE_CHARS = 100  # of a longer first sentence no title is made
NEAR_TITLE = 4  # characters from which a title is looked for in other texts


class Question:
    """A question's kind and the stems of its words."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lower = text.lower()
        asked = _ASKED.search(self.lower)
        self.is_yes_no = _YES_NO.match(text) is not None and " or " not in text
        following = self.lower[asked.end() :].split() if asked else []
        self.kind = "yes/no" if self.is_yes_no else asked[0] if asked else "none"
        self.wanted = f"{self.kind} {following[0].strip('?,.') if following else ''}"
        self.stems = frozenset(words(text))
        names = frozenset(stem for name in _NAME.findall(text[1:]) for stem in words(name))
        self.relations = tuple(dict.fromkeys(stem for stem in words(text) if stem not in names))
        lower = self.lower.replace(",", " ").replace("?", " ").split()
        self.cues = sorted(_CUES.intersection(lower)) or ["none"]
        self.turn = "+".join(sorted(_TURNS.intersection(lower)))

    def names(self, text: str) -> bool:
        """Return whether the question has a text in it, as whole words, whatever their case."""
        plain = normalize_entity(text)
        return len(plain) >= NEAR_TITLE and f" {plain} " in f" {self._plain} "

    @cached_property
    def _plain(self) -> str:
        return normalize_entity(self.text)


@dataclass(frozen=True)
class Passage:
    """A passage of a context."""

    rank: int  # in the order of reading
    title: str  # its first sentence, where it is short; empty for none
    text: str  # what follows it
    asked_about: bool  # whether the question names the title
    linked: bool  # whether a passage that the question asks about names the title

    @property
    def role(self) -> str:
        """How it stands to the question."""
        return "asked" if self.asked_about else "linked" if self.linked else "other"

    @cached_property
    def years(self) -> tuple[int, ...]:
        """Years in it, in order."""
        return tuple(int(year) for year in YEAR.findall(self.text))


def read_passages(question: Question, texts: Sequence[str]) -> list[Passage]:
    """Split passages into title and text, and find those that the question names and those that these name."""
    split = [_split(text) for text in texts]
    asked = [question.names(_bare(title)) for title, _ in split]
    from_asked = " ".join(normalize_entity(text) for (_, text), named in zip(split, asked, strict=True) if named)
    passages = []
    for rank, ((title, text), named) in enumerate(zip(split, asked, strict=True)):
        plain = normalize_entity(_bare(title))
        linked = not named and len(plain) >= NEAR_TITLE and f" {plain} " in f" {from_asked} "
        passages.append(Passage(rank, title, text, named, linked))
    return passages


def linked_from(passage: Passage, passages: Sequence[Passage]) -> Passage | None:
    """Return the first passage whose title another one names, or None."""
    text = f" {normalize_entity(passage.text)} "
    for other in passages:
        plain = normalize_entity(_bare(other.title))
        if other.rank != passage.rank and len(plain) >= NEAR_TITLE and f" {plain} " in text:
            return other
    return None


def order_of(number: int | None, other: int | None) -> str:
    """Compare two numbers, of which either may be missing."""
    if number is None or other is None:
        return "unknown"
    return "less" if number < other else "more" if number > other else "same"


def _split(text: str) -> tuple[str, str]:
    title, stop, rest = text.partition(". ")
    return (title, rest) if stop and len(title) <= TITLE_CHARS else ("", text)


def _bare(title: str) -> str:
    return re.sub(r"\s*\([^)]*\)$", "", title)
