"""Answers by map and reduce over many passages, with citations, as GraphRAG and ReTAG write them."""

import hashlib
import random
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from graphrerank.checks import UserError, check_counts
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.reply import ANSWERED, FAILED, REFUSED, REJECTED, UNUSABLE, Reply, ReplyingModel
from graphrerank.language_models.strict_answers import ask_strictly, read_object
from graphrerank.text import Tokenizer, WordTokenizer
from graphrerank.text.tokenizer import count_tokens
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.replies import RecordedModel

MOST_HELPFUL = 100
LOST = {FAILED, REFUSED, REJECTED}


@dataclass(frozen=True)
class CitedReply(Reply):
    """The answer to one question, with its sources."""

    citations: tuple[int, ...] = ()  # positions of the cited passages in the context, ascending
    # of each part in the order of reading, from 0 to 100; None for an unusable answer
    helpfulness: tuple[int | None, ...] = ()


class PartialAnswer(NamedTuple):
    """An answer from a part of the passages or, with a helpfulness of 100, from all partial answers."""

    text: str
    helpfulness: int
    numbers: tuple[int, ...]  # of the cited passages, from 1


class Request(NamedTuple):
    """A message about one question."""

    row: int  # of the question
    message: str
    shown: set[int]  # numbers of the passages that the answer may cite


@dataclass(eq=False)
class MapReduceWriter:
    """Shuffles a context's passages, answers from each part of them, and merges the most helpful partial answers.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section
    3.1.6: summaries are shuffled and cut into parts of a given size, which spreads relevant ones over the parts; each
    part is answered from with a helpfulness from 0 to 100, and those of 0 are dropped; the rest fill one context, most
    helpful first. ReTAG reads the retrieved summaries instead of all. The prompts ask for citations. The first partial
    answer is always kept; the first other one that does not fit is dropped with all after it.

    Tokens and requests of a question are those of all its parts. It is ``unusable`` if no part has a usable answer, or
    the merged answer is unusable; ``failed``, ``rejected`` or ``refused`` if all its requests were. It abstains if no
    part helps, for a blank question, and for an empty context. Equal questions with equal contexts are sent once.
    """

    model: ReplyingModel
    _: KW_ONLY
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)  # measures passages and answers
    part_tokens: int = 8000  # maximum of a part; a longer passage is a part by itself
    context_tokens: int = 8000  # maximum of the merged partial answers
    seed: int = 0  # of the shuffling, which depends on seed and question only
    tries: int = 3  # requests of each part until an answer is usable
    # of an answer from a part, with the placeholders `{question}` and `{summaries}`
    map_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_map"))
    # of the merged answer, with the placeholders `{question}` and `{answers}`
    reduce_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_reduce"))
    cache: str | Path | None = None  # folder of replies, which a later run reads; None for no cache

    def __post_init__(self) -> None:
        check_counts(part_tokens=self.part_tokens, context_tokens=self.context_tokens)
        self.map_prompt.fill(question="", summaries="")
        self.reduce_prompt.fill(question="", answers="")

    @property
    def name(self) -> str:
        """The prompts' names and fingerprints."""
        return ", ".join(f"{prompt.name} {prompt.fingerprint}" for prompt in (self.map_prompt, self.reduce_prompt))

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from the passages of a context each, all parts of all of them at once."""
        keys = [(question, context.passages) for question, context in zip(questions, contexts, strict=True)]
        asked = list(dict.fromkeys(keys))
        model = RecordedModel(self.model, self.cache)
        requests = []
        for row, (question, passages) in enumerate(asked):
            for part in self._parts(question, passages):
                summaries = "\n\n".join(f"[{index + 1}] {passages[index]}" for index in part)
                message = self.map_prompt.fill(question=question, summaries=summaries)
                requests.append(Request(row, message, {index + 1 for index in part}))
        parts: list[list[PartialAnswer | None]] = [[] for _ in asked]
        for request, answer in zip(requests, self._ask(model, requests, self.map_prompt), strict=True):
            parts[request.row].append(answer)
        final = []
        for row, (question, _) in enumerate(asked):
            if fitting := self._fitting(parts[row]):
                answers = "\n\n".join(
                    f"(helpfulness {part.helpfulness}; summaries {_listed(part.numbers)}) {part.text}"
                    for part in fitting
                )
                message = self.reduce_prompt.fill(question=question, answers=answers)
                final.append(Request(row, message, {number for part in fitting for number in part.numbers}))
        merged = dict(zip((r.row for r in final), self._ask(model, final, self.reduce_prompt), strict=True))
        messages: list[list[str]] = [[] for _ in asked]
        for request in (*requests, *final):
            messages[request.row].append(request.message)
        replies = {
            key: _reply(merged.get(row), parts[row], model.replies_to(messages[row]), len(messages[row]))
            for row, key in enumerate(asked)
        }
        return [replies[key] for key in keys]

    def _parts(self, question: str, passages: Sequence[str]) -> list[list[int]]:
        """Shuffle the positions of a question's passages and cut them into parts."""
        if not question.strip():
            return []
        tokens = count_tokens(self.tokenizer, passages)
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

    def _fitting(self, answers: Sequence[PartialAnswer | None]) -> list[PartialAnswer]:
        """Keep the most helpful partial answers that fit together, and at least one that helps."""
        helpful = sorted((answer for answer in answers if answer and answer.helpfulness), key=lambda a: -a.helpfulness)
        totals = accumulate(count_tokens(self.tokenizer, [answer.text for answer in helpful]))
        return helpful[: max(1, sum(total <= self.context_tokens for total in totals))]

    def _ask(self, model: RecordedModel, requests: Sequence[Request], prompt: Prompt) -> list[PartialAnswer | None]:
        """Ask, refusing answers that cite passages which were not shown."""

        def check(index: int, answer: PartialAnswer) -> None:
            shown = requests[index].shown
            if unknown := [number for number in answer.numbers if number not in shown]:
                raise UserError(f"`summaries` must name some of {_listed(sorted(shown))}, got {unknown[0]}")

        return ask_strictly(
            model,
            [request.message for request in requests],
            system=prompt.instructions(),
            parse=parse_partial_answer if prompt is self.map_prompt else parse_final_answer,
            check=check,
            tries=self.tries,
            form=prompt.form,
        )


def parse_partial_answer(content: str) -> PartialAnswer:
    """Parse the answer to a part, strictly; one that claims to help needs a text and a cited passage."""
    helpfulness = Annotated[int, Field(ge=0, le=MOST_HELPFUL)]
    found = read_object(content, answer=str, helpfulness=helpfulness, summaries=list[int])
    return _cited(found.answer, found.helpfulness, found.summaries)


def parse_final_answer(content: str) -> PartialAnswer:
    """Parse the merged answer, strictly; it needs a text and a cited passage."""
    found = read_object(content, answer=str, summaries=list[int])
    return _cited(found.answer, MOST_HELPFUL, found.summaries)


def _cited(text: str, helpfulness: int, numbers: list[int]) -> PartialAnswer:
    if helpfulness and not (text and numbers):
        raise UserError("an answer that helps must have a text and name the summaries that it rests on")
    return PartialAnswer(text, helpfulness, tuple(sorted(set(numbers))))


def _reply(
    merged: PartialAnswer | None, parts: Sequence[PartialAnswer | None], replies: Sequence[Reply], num_messages: int
) -> CitedReply:
    """Combine the replies to all requests of a question."""
    outcome = ANSWERED
    usable = [part.helpfulness for part in parts if part is not None]
    if merged is None and (any(usable) or (parts and not usable)):
        outcomes = {reply.outcome for reply in replies}
        outcome = outcomes.pop() if len(outcomes) == 1 and outcomes <= LOST else UNUSABLE
    counts: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens"):
        counted = [getattr(reply, name) for reply in replies if reply.has_come]
        counts[name] = None if None in counted else sum(counted)
    return CitedReply(
        "" if merged is None else merged.text,
        outcome,
        next((reply.model for reply in reversed(replies) if reply.model), ""),
        attempts=1 + sum(reply.attempts for reply in replies) - num_messages if replies else 1,
        problem=next((reply.problem for reply in reversed(replies) if reply.problem), ""),
        citations=() if merged is None else tuple(number - 1 for number in merged.numbers),
        helpfulness=tuple(None if part is None else part.helpfulness for part in parts),
        **counts,
    )


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
