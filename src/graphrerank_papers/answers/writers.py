"""Writers of answers by a chat model: in one request, or by map and reduce; every reply is cached and recorded."""

import hashlib
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from pydantic import Field

from graphrerank.language_models.prompt import Prompt, in_form, is_schema, shipped_prompt
from graphrerank.language_models.reply import ANSWERED, FAILED, KEPT, REFUSED, REJECTED, UNUSABLE, Reply, ReplyingModel
from graphrerank.language_models.strict_answers import ask_strictly, first_message, parse_object_answer
from graphrerank.metrics.coverage import normalize_answer
from graphrerank.text import Tokenizer, WordTokenizer
from graphrerank.text.tokenizer import count_tokens
from graphrerank.utils.caching import BlobStore, hash_texts, short_hash
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import check_writable
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.knowledge.corpus_knowledge import grouped

Answer = TypeVar("Answer")

MOST_HELPFUL = 100
LOST = {FAILED, REFUSED, REJECTED}


class RecordedModel:
    """A :class:`ReplyingModel` and :class:`ChatModel` over a replying one, which caches and remembers its replies.

    The cache is ``<folder>/<hash of the model's fingerprint>.sqlite``, by system message and question. Each reply is
    written before the next one is awaited. Failed and rejected requests are not kept.

    In :meth:`ask`, a failed, rejected or refused request is an empty text: :func:`ask_strictly` counts it as unusable,
    repeats the request, and goes on without it. ``cache`` is a folder; None for no cache.
    """

    def __init__(self, model: ReplyingModel, cache: str | Path | None = None) -> None:
        self.model = model
        self.cache = None if cache is None else Path(cache)
        self.recorded: list[Reply] = []  # in order
        # by the first message of a question: each message of its retries, and the reply
        self._replies: dict[str, list[tuple[str, Reply]]] = defaultdict(list)

    @property
    def fingerprint(self) -> str:
        """The wrapped model's fingerprint."""
        return self.model.fingerprint

    def in_form(self, form: str | None) -> "RecordedModel":
        """Return the same record of a model that keeps to a form; see :func:`in_form`."""
        twin = RecordedModel(in_form(self.model, form), self.cache)
        twin.recorded, twin._replies = self.recorded, self._replies
        return twin

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, or read its reply from disk; equal questions are sent once."""
        path = None if self.cache is None else self.cache / f"{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(path, "replies")
        rows: dict[bytes, list[int]] = {}
        for row, question in enumerate(questions):
            rows.setdefault(hash_texts([question] if system is None else [system, question]), []).append(row)
        known = store.known(list(rows))
        waiting = [key for key in rows if key not in known]
        for key, content in known.items():
            try:
                reply = Reply.from_bytes(content)
            except ValueError as error:
                raise UserError(f"{path}: {error}; delete the file to ask again") from error
            yield from ((row, reply) for row in rows[key])
        if waiting and path is not None:
            check_writable(path.parent)
        for index, reply in self.model.replies([questions[rows[key][0]] for key in waiting], system=system):
            if reply.outcome in KEPT:
                store.add([waiting[index]], [reply.to_bytes()])
            yield from ((row, reply) for row in rows[waiting[index]])

    def all_replies(self, questions: Sequence[str], *, system: str | None) -> list[Reply]:
        """Ask all questions, record their replies, and return them in order."""
        replies = dict(self.replies(questions, system=system))
        for row, question in {question: (row, question) for row, question in enumerate(questions)}.values():
            known = self._replies[first_message(question)]
            if not any(message == question and earlier.outcome in KEPT for message, earlier in known):
                known.append((question, replies[row]))  # otherwise it was read from the cache
                self.recorded.append(replies[row])
        return [replies[row] for row in range(len(questions))]

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation; ``read`` must accept any text."""
        return [read(reply.text) for reply in self.all_replies(questions, system=system)]

    def replies_to(self, messages: Iterable[str]) -> list[Reply]:
        """List the recorded replies to some messages, with those to repeated requests."""
        return [reply for message in messages for _, reply in self._replies[message]]


def ask_prompt(model: ReplyingModel, prompt: Prompt, messages: Sequence[str], cache: str | Path | None) -> list[Reply]:
    """Ask the filled messages of a prompt, in its form; ``cache`` as of :class:`RecordedModel`."""
    return RecordedModel(model, cache).in_form(prompt.form).all_replies(messages, system=prompt.instructions())


class Writer(Protocol):
    """Anything that answers a question from a context."""

    @property
    def name(self) -> str:
        """Its name in reports."""

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from a context each; the text of one that abstains is empty."""


@dataclass(eq=False)
class PromptedWriter:
    """Asks a chat model; equal questions with equal contexts are sent once.

    A prompt with a JSON schema as form requires an object with the text ``answer``, one with a regular expression an
    answer that matches it; any other text is blank and counted as ``unusable``.
    """

    model: ReplyingModel
    prompt: Prompt  # with the placeholders `{context}` and `{question}`
    _: KW_ONLY
    cache: str | Path | None = None  # folder of replies, which a later run reads; None for no cache

    def __post_init__(self) -> None:
        self.prompt.fill(context="", question="")
        self.prompt.instructions()

    @property
    def name(self) -> str:
        """The prompt's name and fingerprint."""
        return f"{self.prompt.name} {self.prompt.fingerprint}"

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions; an empty context is sent too, as the model may abstain."""
        pairs = zip(questions, contexts, strict=True)
        messages = [self.prompt.fill(context=context.text, question=question) for question, context in pairs]
        return [self._answer(reply) for reply in ask_prompt(self.model, self.prompt, messages, self.cache)]

    def _answer(self, reply: Reply) -> Reply:
        text = reply.text
        if text and self.prompt.form is not None:
            try:
                text = answer_in_form(text, self.prompt.form)
            except ValueError:
                return replace(reply, text="", outcome=UNUSABLE)
        abstention = normalize_answer(self.prompt.abstention or "")
        if abstention and f" {abstention} " in f" {normalize_answer(text)} ":  # whole words: no "N/A" in "Canada"
            return replace(reply, text="", outcome=ANSWERED)  # also where the rest was cut
        return replace(reply, text=text.strip())


def answer_in_form(text: str, form: str) -> str:
    """Read an answer in a form; a ValueError if it has another.

    Example:
        >>> answer_in_form('{"answer": "Metz"}', '{"type": "object"}'), answer_in_form("yes", "yes|no")
        ('Metz', 'yes')
    """
    if is_schema(form):
        content = json.loads(text)
        answer = content.get("answer") if isinstance(content, dict) else None
    else:
        answer = text if re.fullmatch(form, text.strip()) else None
    if not isinstance(answer, str):
        raise UserError(f"the answer must be of the form {form[:200]!r}, got {text[:80]!r}")
    return answer


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


Request = tuple[int, str, set[int]]  # row of the question, message, and numbers of the passages that may be cited


@dataclass(eq=False)
class MapReduceWriter:
    """Shuffles a context's passages, answers from each part of them, and merges the most helpful partial answers.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section
    3.1.6: partial answers have a helpfulness from 0 to 100; those of 0 are dropped, and the rest fill one context, most
    helpful first, up to the first that does not fit. The prompts ask for citations. One partial answer is always kept.

    Tokens and requests of a question are those of all its parts. It is ``unusable`` if no part or not the merged answer
    is usable; ``failed``, ``rejected`` or ``refused`` if all its requests were. It abstains if no part helps, for a
    blank question, and for an empty context.
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
        requests: list[Request] = []
        for row, (question, passages) in enumerate(asked):
            for part in self._parts(question, passages):
                summaries = "\n\n".join(f"[{number}] {passages[number - 1]}" for number in part)
                requests.append((row, self.map_prompt.fill(question=question, summaries=summaries), set(part)))
        answers = self._ask(model, requests, self.map_prompt)
        parts = grouped(zip((row for row, *_ in requests), answers, strict=True), len(asked))
        final: list[Request] = []
        for row, (question, _) in enumerate(asked):
            if fitting := self._fitting(parts[row]):
                shown = [
                    f"(helpfulness {p.helpfulness}; summaries {str([*p.numbers])[1:-1]}) {p.text}" for p in fitting
                ]
                message = self.reduce_prompt.fill(question=question, answers="\n\n".join(shown))
                final.append((row, message, {number for part in fitting for number in part.numbers}))
        merged = dict(zip((row for row, *_ in final), self._ask(model, final, self.reduce_prompt), strict=True))
        messages = grouped((request[:2] for request in (*requests, *final)), len(asked))
        replies = {
            key: _reply(merged.get(row), parts[row], model.replies_to(messages[row]), len(messages[row]))
            for row, key in enumerate(asked)
        }
        return [replies[key] for key in keys]

    def _parts(self, question: str, passages: Sequence[str]) -> list[list[int]]:
        """Shuffle the numbers from 1 of a question's passages and cut them into parts."""
        if not question.strip():
            return []
        tokens = count_tokens(self.tokenizer, passages)
        digest = hashlib.sha256(f"{self.seed} {question}".encode("utf-8", "surrogatepass")).digest()
        order = list(range(len(tokens)))
        random.Random(digest).shuffle(order)
        parts, remaining = list[list[int]](), 0
        for index in order:
            if not parts or tokens[index] > remaining:
                parts.append([])
                remaining = self.part_tokens
            parts[-1].append(index + 1)
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
            *_, shown = requests[index]
            if unknown := sorted(set(answer.numbers) - shown):
                raise UserError(f"`summaries` must name some of {sorted(shown)}, got {unknown[0]}")

        parse = partial(parse_partial_answer, is_final=prompt is self.reduce_prompt)
        settings: dict[str, Any] = {"system": prompt.instructions(), "form": prompt.form, "tries": self.tries}
        return ask_strictly(model, [message for _, message, _ in requests], parse=parse, check=check, **settings)


def parse_partial_answer(content: str, *, is_final: bool = False) -> PartialAnswer:
    """Parse the answer to a part, or the merged one, strictly; one that helps needs a text and a cited passage."""
    more = {} if is_final else {"helpfulness": Annotated[int, Field(ge=0, le=MOST_HELPFUL)]}
    found = parse_object_answer(content, answer=str, **more, summaries=list[int])
    helpfulness = getattr(found, "helpfulness", MOST_HELPFUL)
    if helpfulness and not (found.answer and found.summaries):
        raise UserError("an answer that helps must have a text and name the summaries that it rests on")
    return PartialAnswer(found.answer, helpfulness, tuple(sorted(set(found.summaries))))


def _reply(
    merged: PartialAnswer | None, parts: Sequence[PartialAnswer | None], replies: Sequence[Reply], num_messages: int
) -> CitedReply:
    """Combine the replies to all requests of a question."""
    outcome = ANSWERED
    usable = [part.helpfulness for part in parts if part is not None]
    if merged is None and (any(usable) or (parts and not usable)):
        outcomes = {reply.outcome for reply in replies}
        outcome = outcomes.pop() if len(outcomes) == 1 and outcomes <= LOST else UNUSABLE
    come = any(reply.has_come for reply in replies)
    counts = {name: total_tokens(replies, name) if come else 0 for name in ("input_tokens", "output_tokens")}
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


def total_tokens(replies: Sequence[Reply], name: str) -> int | None:
    """Add up ``input_tokens`` or ``output_tokens`` of the replies that came; None if there is none, or one lacks it."""
    counts = [getattr(reply, name) for reply in replies if reply.has_come]
    return None if not counts or None in counts else sum(counts)
