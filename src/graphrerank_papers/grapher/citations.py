"""Detection of the references that a piece of a paper cites."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json
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


class LanguageModelCitations:
    """Asks a chat model, as FastInsight does: one question per text that has references to choose from.

    ``prompt`` has the places ``{references}`` and ``{text}``. An answer that is not the requested JSON is requested
    again, in all ``tries`` times; a text without a usable answer cites nothing.
    """

    def __init__(self, model: ChatModel, *, tries: int = 3, prompt: Prompt | None = None) -> None:
        check_counts(tries=tries)
        self.model, self.tries, self.prompt = model, tries, prompt or shipped_prompt("citations")
        self.prompt.fill(references="", text="")

    def detect(self, texts: Sequence[str], references: Sequence[Sequence[Reference]]) -> list[list[int]]:
        """List the references of its paper that each text cites."""
        rows = [row for row, entries in enumerate(references) if entries]

        def check(index: int, numbers: list[int]) -> None:
            if not all(1 <= number <= len(references[rows[index]]) for number in numbers):
                raise ValueError(f"`cited` must be numbers of the list, got {numbers}")

        answers = ask_strictly(
            self.model,
            [self.prompt.fill(references=_numbered(references[row]), text=texts[row]) for row in rows],
            system=self.prompt.instructions(),
            parse=read_numbers,
            check=check,
            tries=self.tries,
            form=self.prompt.form,
        )
        cited: list[list[int]] = [[] for _ in texts]
        for row, numbers in zip(rows, answers, strict=True):
            cited[row] = sorted({number - 1 for number in numbers or ()})
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


def read_numbers(content: str) -> list[int]:
    """Parse an answer, strictly: ``{"cited": [numbers]}``."""
    answer = read_json(content)
    numbers = answer.get("cited") if isinstance(answer, dict) and set(answer) == {"cited"} else None
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise ValueError(f'the answer must be {{"cited": [numbers]}}, got {content[:80]!r}')
    return numbers
