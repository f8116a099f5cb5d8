"""Answers to questions over a whole corpus: summaries are read in parts, and the partial answers merged."""

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json
from graphrerank.text.tokenizer import Tokenizer, count_tokens

MOST_HELPFUL = 100


class Summary(NamedTuple):
    """A summary with its name in citations."""

    name: str
    text: str


@dataclass(frozen=True)
class CitedAnswer:
    """The answer to one question."""

    text: str  # empty if no summary helps, or the model gave no usable answer
    citations: tuple[str, ...] = ()  # unique names of the cited summaries, in the order in which they were given
    # helpfulness of each part, in the order of reading; None for a skipped one
    helpfulness: tuple[int | None, ...] = ()
    tokens_read: int = 0  # number of tokens of all summaries shown
    messages: tuple[str, ...] = field(default=(), repr=False, compare=False)  # that were asked for it, each once


class PartialAnswer(NamedTuple):
    """A model's answer to a part of the summaries or, with a helpfulness of 100, to all partial answers."""

    text: str
    helpfulness: int
    numbers: tuple[int, ...]


@dataclass(eq=False)
class MapReduceAnswers:
    """Shuffle the summaries, answer from each part of them, and merge the most helpful partial answers.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section
    3.1.6: summaries are shuffled and cut into parts of a given size, which spreads relevant ones over the parts; each
    part is answered from with a helpfulness from 0 to 100, and those of 0 are dropped; the rest fill one context, most
    helpful first. ReTAG reads the retrieved summaries instead of all. The prompts ask for citations.
    The first partial answer is always kept; the first other one that does not fit is dropped with all after it.
    """

    model: ChatModel  # best wrapped in an `AnswerCache`
    tokenizer: Tokenizer  # measures summaries and answers
    _: KW_ONLY
    part_tokens: int = 8000  # maximum of a part; a longer summary is a part of its own
    context_tokens: int = 8000  # maximum of the merged partial answers
    seed: int = 0  # of the shuffling, which depends on seed and question only
    tries: int = 3  # see `ask_strictly`
    # of an answer from a part, with the places `{question}` and `{summaries}`
    map_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_map"))
    # of the merged answer, with the places `{question}` and `{answers}`
    reduce_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_reduce"))
    # messages about parts, and about whole answers, without a usable answer, over all calls
    skipped: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        check_counts(part_tokens=self.part_tokens, context_tokens=self.context_tokens)
        self.map_prompt.fill(question="", summaries="")
        self.reduce_prompt.fill(question="", answers="")

    def answer(self, questions: Sequence[str], summaries: Sequence[Sequence[Summary]]) -> list[CitedAnswer]:
        """Answer ``B`` questions from the summaries to read for each, all parts of all of them at once.

        The answer to a blank question, or one without summaries, is empty.
        """
        tokens = [count_tokens(self.tokenizer, [summary.text for summary in row]) for row in summaries]
        parts = [
            self._parts(question, counts) if question.strip() else []
            for question, counts in zip(questions, tokens, strict=True)
        ]
        asked: list[list[str]] = [[] for _ in questions]
        partial = self._map(questions, summaries, parts, asked)
        answers = []
        finals = self._reduce(questions, partial, asked)
        for final, row, read, counts, messages in zip(finals, summaries, partial, tokens, asked, strict=True):
            text, numbers = ("", ()) if final is None else (final.text, final.numbers)
            citations = tuple(row[number - 1].name for number in numbers)
            helpfulness = tuple(None if answer is None else answer.helpfulness for answer in read)
            answers.append(CitedAnswer(text, citations, helpfulness, sum(counts) if read else 0, tuple(messages)))
        return answers

    def _parts(self, question: str, tokens: Sequence[int]) -> list[list[int]]:
        """Shuffle the indices of a question's summaries and cut them into parts."""
        digest = hashlib.sha256(f"{self.seed} {question}".encode("utf-8", "surrogatepass")).digest()
        order = list(range(len(tokens)))
        random.Random(digest).shuffle(order)
        parts: list[list[int]] = []
        remaining = 0
        for index in order:
            if not parts or tokens[index] > remaining:
                parts.append([])
                remaining = self.part_tokens
            parts[-1].append(index)
            remaining -= tokens[index]
        return parts

    def _map(
        self,
        questions: Sequence[str],
        summaries: Sequence[Sequence[Summary]],
        parts: Sequence[Sequence[list[int]]],
        asked: Sequence[list[str]],
    ) -> list[list[PartialAnswer | None]]:
        """Answer every question from each of its parts; None without a usable answer. Messages go into ``asked``."""
        row_parts = [(row, part) for row, row_parts in enumerate(parts) for part in row_parts]
        messages = [
            self.map_prompt.fill(
                question=questions[row],
                summaries="\n\n".join(f"[{index + 1}] {summaries[row][index].text}" for index in part),
            )
            for row, part in row_parts
        ]
        shown = [{index + 1 for index in part} for _, part in row_parts]
        for (row, _), message in zip(row_parts, messages, strict=True):
            asked[row].append(message)
        answers = self._ask(messages, shown, self.map_prompt, read=parse_partial_answer)
        partial: list[list[PartialAnswer | None]] = [[] for _ in questions]
        for (row, _), answer in zip(row_parts, answers, strict=True):
            partial[row].append(answer)
        return partial

    def _reduce(
        self,
        questions: Sequence[str],
        partial: Sequence[Sequence[PartialAnswer | None]],
        asked: Sequence[list[str]],
    ) -> list[PartialAnswer | None]:
        """Merge the helpful answers to each question; None if nothing helps, or without a usable answer."""
        helpful = [
            sorted((answer for answer in row if answer and answer.helpfulness), key=lambda answer: -answer.helpfulness)
            for row in partial
        ]
        rows = [row for row, answers in enumerate(helpful) if answers]
        fitting = [self._fitting(helpful[row]) for row in rows]
        messages = [
            self.reduce_prompt.fill(
                question=questions[row],
                answers="\n\n".join(
                    f"(helpfulness {a.helpfulness}; summaries {_listed(a.numbers)}) {a.text}" for a in answers
                ),
            )
            for row, answers in zip(rows, fitting, strict=True)
        ]
        shown = [{number for answer in answers for number in answer.numbers} for answers in fitting]
        for row, message in zip(rows, messages, strict=True):
            asked[row].append(message)
        merged = self._ask(messages, shown, self.reduce_prompt, read=parse_final_answer)
        final: list[PartialAnswer | None] = [None] * len(questions)
        for row, answer in zip(rows, merged, strict=True):
            final[row] = answer
        return final

    def _fitting(self, partial: Sequence[PartialAnswer]) -> list[PartialAnswer]:
        """Keep the first partial answers that fit together, and at least one."""
        totals = accumulate(count_tokens(self.tokenizer, [answer.text for answer in partial]))
        num_fitting = sum(total <= self.context_tokens for total in totals)
        return list(partial[: max(1, num_fitting)])

    def _ask(
        self,
        messages: Sequence[str],
        shown: Sequence[AbstractSet[int]],
        prompt: Prompt,
        *,
        read: Callable[[str], PartialAnswer],
    ) -> list[PartialAnswer | None]:
        """Ask, refusing answers that cite summaries which were not shown."""

        def check(index: int, answer: PartialAnswer) -> None:
            unknown = [number for number in answer.numbers if number not in shown[index]]
            if unknown:
                raise ValueError(f"`summaries` must name some of {_listed(sorted(shown[index]))}, got {unknown[0]}")

        system = prompt.instructions()
        answers = ask_strictly(
            self.model, messages, system=system, parse=read, check=check, tries=self.tries, form=prompt.form
        )
        self.skipped += [message for message, answer in zip(messages, answers, strict=True) if answer is None]
        return answers


def parse_partial_answer(content: str) -> PartialAnswer:
    """Parse the answer to a part, strictly; one that claims to help needs a text and a cited summary."""
    answer = _object(content, {"answer", "helpfulness", "summaries"})
    helpfulness = answer["helpfulness"]
    if type(helpfulness) is not int or not 0 <= helpfulness <= MOST_HELPFUL:
        raise ValueError(f"`helpfulness` must be an integer from 0 to {MOST_HELPFUL}, got {helpfulness!r}")
    return _cited(answer, helpfulness)


def parse_final_answer(content: str) -> PartialAnswer:
    """Parse the merged answer, strictly; it needs a text and a cited summary."""
    return _cited(_object(content, {"answer", "summaries"}), MOST_HELPFUL)


def _object(content: str, keys: set[str]) -> dict[str, Any]:
    answer = read_json(content)
    if not isinstance(answer, dict) or set(answer) != keys:
        raise ValueError(f"the answer must be a JSON object with the keys {sorted(keys)}, got {content[:80]!r}")
    return answer


def _cited(answer: dict[str, Any], helpfulness: int) -> PartialAnswer:
    text, numbers = answer["answer"], answer["summaries"]
    if not isinstance(text, str) or not isinstance(numbers, list) or any(type(number) is not int for number in numbers):
        raise ValueError(f"`answer` must be a string and `summaries` a list of integers, got {str(answer)[:80]!r}")
    if helpfulness and not (text.strip() and numbers):
        raise ValueError("an answer that helps must have a text and name the summaries that it rests on")
    return PartialAnswer(text.strip(), helpfulness, tuple(sorted(set(numbers))))


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
