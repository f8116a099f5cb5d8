"""Detection of the references that a piece of a paper cites."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Protocol

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt
from graphrerank.text import normalize_entity

MIN_TITLE_WORDS = 3  # shorter titles are mentioned by chance

_BRACKETS = re.compile(r"\[([^\[\]]{1,200})\]")
_RANGE = re.compile(r"(\d{1,4})\s*[-–]\s*(\d{1,4})")  # noqa: RUF001
_NAME = r"[^\W\d_][\w'’\-]+"  # noqa: RUF001
_AUTHOR_YEAR = re.compile(
    rf"({_NAME})(?:\s+(et\s+al\.?|(?:and|&)\s+(?:{_NAME}\s+)*?({_NAME}))(?:'s|’s)?)?[,\s]*[(\[]?\s*"  # noqa: RUF001
    r"((?:1[89]|20)\d\d[a-z]?(?:\s*,\s*(?:1[89]|20)\d\d[a-z]?)*)"
)
_YEAR = re.compile(r"((?:1[89]|20)\d\d)([a-z]?)")


@dataclass(frozen=True)
class Reference:
    """An entry of a paper's bibliography; unknown fields are empty."""

    paper_id: str  # the cited paper
    key: str = ""  # its key in brackets, such as `12` or `Smith20`
    title: str = ""
    authors: tuple[str, ...] = ()  # names such as "Ann Smith" or "Smith, Ann"
    year: str = ""  # such as `2020` or `2020a`


class CitationDetector(Protocol):
    """Anything that finds citations in texts."""

    def detect(self, texts: Sequence[str], references: Sequence[Sequence[Reference]]) -> list[list[int]]:
        """List the references of its paper that each text cites, as ascending indices into their list."""


class CitationPatterns:
    """Finds citations by the usual patterns, without a model.

    - A key in square brackets, alone or in a list; ranges of numbers are expanded: "[3, 7-9; Smith20]".
    - The first author's surname and the year, with "et al.", the second author, or neither: "(Smith et al., 2020a)",
      "Smith and Jones (2019, 2020)". A letter after the year must match if the reference has one.
    - The title, if it has three words or more, compared without case and punctuation.
    """

    def detect(self, texts: Sequence[str], references: Sequence[Sequence[Reference]]) -> list[list[int]]:
        """List the references of its paper that each text cites.

        Example:
            >>> references = [Reference("a", key="1"), Reference("b", authors=("Ann Smith", "Bo Lee"), year="2020")]
            >>> CitationPatterns().detect(["As shown [1].", "Smith and Lee (2020) agree."], [references, references])
            [[0], [1]]
        """
        return [_cited(text, entries) for text, entries in zip(texts, references, strict=True)]


@dataclass(eq=False)
class LanguageModelCitations:
    """Asks a chat model, as FastInsight does: one question per text that has references to choose from.

    An answer that is not the requested JSON is requested again; a text without a usable answer cites nothing and is
    counted in ``num_skipped``.
    """

    model: ChatModel  # wrap it in an `AnswerCache` to pay for nothing twice
    _: KW_ONLY
    tries: int = 3  # requests per text until an answer is usable
    # with the places `{references}` and `{text}`; it asks for `{"cited": [...]}`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "citations"))
    num_skipped: int = field(default=0, init=False)  # texts without a usable answer, over all calls

    def __post_init__(self) -> None:
        check_counts(tries=self.tries)
        self.prompt.fill(references="", text="")

    def detect(self, texts: Sequence[str], references: Sequence[Sequence[Reference]]) -> list[list[int]]:
        """List the references of its paper that each text cites."""
        cited: list[list[int]] = [[] for _ in texts]
        waiting = [index for index, entries in enumerate(references) if entries]
        model = in_form(self.model, self.prompt.form)
        for _ in range(self.tries):
            questions = [
                self.prompt.fill(references=_numbered(references[index]), text=texts[index]) for index in waiting
            ]
            answers = model.ask(questions, system=self.prompt.instructions(), read=_read_numbers) if waiting else []
            unusable = []
            for index, numbers in zip(waiting, answers, strict=True):
                if numbers is None or not all(1 <= number <= len(references[index]) for number in numbers):
                    unusable.append(index)
                else:
                    cited[index] = sorted({number - 1 for number in numbers})
            waiting = unusable
        self.num_skipped += len(waiting)
        return cited


def _cited(text: str, references: Sequence[Reference]) -> list[int]:
    if not references:
        return []
    keys, dated, words = set(_keys(text)), set(_dated_names(text)), f" {normalize_entity(text)} "
    return [
        index
        for index, entry in enumerate(references)
        if entry.key.strip("[] ").casefold() in keys or _names_and_year(entry, dated) or _title(entry.title) in words
    ]


def _keys(text: str) -> Iterator[str]:
    """List the keys in square brackets, ranges expanded, in lower case."""
    for group in _BRACKETS.findall(text):
        for part in re.split(r"[,;]", group):
            span = _RANGE.fullmatch(part.strip())
            if span is not None and int(span[1]) < int(span[2]):
                yield from map(str, range(int(span[1]), int(span[2]) + 1))
            elif part.strip():
                yield part.strip().casefold()


def _dated_names(text: str) -> Iterator[tuple[str, str, str]]:
    """List (first surname, second surname or "", year) of each likely citation."""
    for match in _AUTHOR_YEAR.finditer(text):
        for year in re.split(r"\s*,\s*", match[4]):
            yield normalize_entity(match[1]), normalize_entity(match[3] or ""), year


def _names_and_year(entry: Reference, dated: set[tuple[str, str, str]]) -> bool:
    year = _YEAR.fullmatch(entry.year.strip())
    if year is None or not entry.authors:
        return False
    surnames = [_surname(author) for author in entry.authors]
    years = {year[0]} if year[2] else {year[1], *(f"{year[1]}{letter}" for letter in "abcdefgh")}
    return any(
        first == surnames[0] and when in years and (not second or second in surnames[1:])
        for first, second, when in dated
    )


def _surname(author: str) -> str:
    """Return the last word of a surname, normalised."""
    words = normalize_entity(author.partition(",")[0]).split()
    return words[-1] if words else ""


def _title(title: str) -> str:
    """Return a title as searched for; if it is too short, a string that occurs in no text."""
    comparable = normalize_entity(title)
    return f" {comparable} " if len(comparable.split()) >= MIN_TITLE_WORDS else "\n"


def _numbered(references: Sequence[Reference]) -> str:
    lines = []
    for number, entry in enumerate(references, start=1):
        key = f"[{entry.key}]" if entry.key else ""
        known = filter(None, (key, ", ".join(entry.authors), entry.title, entry.year))
        lines.append(f"{number}. {'; '.join(known)}")
    return "\n".join(lines)


def _read_numbers(content: str) -> list[int] | None:
    try:
        answer = json.loads(content)
    except (ValueError, TypeError, RecursionError):  # TypeError: the model's answer was null
        return None
    numbers = answer.get("cited") if isinstance(answer, dict) and set(answer) == {"cited"} else None
    usable = isinstance(numbers, list) and all(type(number) is int for number in numbers)
    return numbers if usable else None
