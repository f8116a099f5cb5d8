"""Write answers with a chat model, in one request or by map and reduce. Every reply is cached and recorded."""

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
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, TypeVar

from pydantic import Field

from graphrerank.language_models.prompt import Prompt, in_form, is_schema, shipped_prompt
from graphrerank.language_models.reply import (
    ANSWERED,
    CACHED_OUTCOMES,
    FAILED,
    REFUSED,
    REJECTED,
    UNUSABLE,
    Reply,
    ReplyingModel,
)
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

#: Maximum helpfulness of a partial answer.
MAX_HELPFULNESS = 100
#: Outcomes of requests that brought no answer.
LOST = {FAILED, REFUSED, REJECTED}


class RecordedModel:
    """Wrapper of a :class:`ReplyingModel` that caches and records its replies, and is also a :class:`ChatModel`.

    The cache is the file ``<cache>/<hash of the model's fingerprint>.sqlite``, keyed by system message and question.
    Each reply is written before the next one arrives. Failed and rejected requests are not stored.

    In :meth:`ask`, a failed, rejected or refused request is an empty text. :func:`ask_strictly` treats it as unusable,
    repeats the request, and continues without it after the last attempt.

    Attributes:
        model: Wrapped model.
        cache: Folder of the cache, or None.
        recorded: Replies in order.
    """

    def __init__(self, model: ReplyingModel, cache: str | Path | None = None) -> None:
        """Wrap a model.

        Args:
            model: Model that replies.
            cache: Folder of the cache. If None, replies are not stored.
        """
        self.model = model
        self.cache = None if cache is None else Path(cache)
        self.recorded: list[Reply] = []
        # The key is the first message of a question. The values are the messages of its retries, with their replies.
        self._replies: dict[str, list[tuple[str, Reply]]] = defaultdict(list)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the wrapped model."""
        return self.model.fingerprint

    def in_form(self, form: str | None) -> "RecordedModel":
        """Return a wrapper of this model, constrained to a form. Both wrappers share their records.

        Args:
            form: JSON schema or regular expression, or None (see :func:`in_form`).
        """
        twin = RecordedModel(in_form(self.model, form), self.cache)
        twin.recorded, twin._replies = self.recorded, self._replies
        return twin

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, Reply]]:
        """Ask each question, or read its reply from the cache. Duplicate questions are sent once.

        Args:
            questions: User messages, one per conversation.
            system: System message, or None.

        Yields:
            Index and reply of each question, in the order in which the replies arrive.

        Raises:
            UserError: If the cache is damaged or cannot be written.
        """
        path = None if self.cache is None else self.cache / f"{short_hash(self.fingerprint)}.sqlite"
        store = BlobStore(path, "replies")
        rows: dict[bytes, list[int]] = {}
        for row, question in enumerate(questions):
            rows.setdefault(hash_texts([question] if system is None else [system, question]), []).append(row)
        known = store.stored(list(rows))
        waiting = [key for key in rows if key not in known]
        for key, content in known.items():
            try:
                reply = Reply.from_bytes(content)
            except ValueError as error:
                raise UserError(f"{path}: {error}. Delete the file to send the requests again.") from error
            yield from ((row, reply) for row in rows[key])
        if waiting and path is not None:
            check_writable(path.parent)
        for index, reply in self.model.replies([questions[rows[key][0]] for key in waiting], system=system):
            if reply.outcome in CACHED_OUTCOMES:
                store.add([waiting[index]], [reply.to_bytes()])
            yield from ((row, reply) for row in rows[waiting[index]])

    def all_replies(self, questions: Sequence[str], *, system: str | None) -> list[Reply]:
        """Ask all questions, and record their replies.

        Args:
            questions: User messages, one per conversation.
            system: System message, or None.

        Returns:
            Reply to each question.
        """
        replies = dict(self.replies(questions, system=system))
        for row, question in {question: (row, question) for row, question in enumerate(questions)}.values():
            known = self._replies[first_message(question)]
            if not any(message == question and earlier.outcome in CACHED_OUTCOMES for message, earlier in known):
                known.append((question, replies[row]))  # a repeated question would get the same reply from the cache
                self.recorded.append(replies[row])
        return [replies[row] for row in range(len(questions))]

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Answer]) -> list[Answer]:
        """Ask each question in a separate conversation.

        Args:
            questions: User messages, one per conversation.
            system: System message, or None.
            read: Function that parses a reply. It must accept any text.

        Returns:
            Parsed reply to each question.
        """
        return [read(reply.text) for reply in self.all_replies(questions, system=system)]

    def replies_to(self, messages: Iterable[str]) -> list[Reply]:
        """Return the recorded replies to messages, including the replies to their retries.

        Args:
            messages: First messages of questions.
        """
        return [reply for message in messages for _, reply in self._replies[message]]


def ask_prompt(model: ReplyingModel, prompt: Prompt, messages: Sequence[str], cache: str | Path | None) -> list[Reply]:
    """Send filled messages of a prompt to a model that is constrained to the form of the prompt.

    Args:
        model: Model that replies.
        prompt: Prompt with the instructions and the form.
        messages: Filled messages.
        cache: Folder of the cache of :class:`RecordedModel`. If None, replies are not stored.

    Returns:
        Reply to each message.
    """
    return RecordedModel(model, cache).in_form(prompt.form).all_replies(messages, system=prompt.instructions())


@dataclass(eq=False)
class PromptedModel:
    """Chat model that receives one message per question, in the words of a prompt. Base of writers and judges.

    Attributes:
        model: Chat model.
        prompt: Prompt with the ``placeholders`` of the class.
        cache: Folder in which replies are stored for later runs. If None, replies are not stored.
        placeholders: Names of the placeholders that the prompt must have.
    """

    model: ReplyingModel
    prompt: Prompt
    _: KW_ONLY
    cache: str | Path | None = None

    placeholders: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.prompt.fill(**dict.fromkeys(self.placeholders, ""))
        self.prompt.instructions()

    def ask(self, messages: Sequence[str]) -> list[Reply]:
        """Return the reply to each message.

        Args:
            messages: Filled messages of the prompt.
        """
        return ask_prompt(self.model, self.prompt, messages, self.cache)


class Writer(Protocol):
    """Protocol of writers, which answer questions from contexts."""

    @property
    def name(self) -> str:
        """Name of the writer in reports."""

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer each question from its context.

        Args:
            questions: ``Q`` questions.
            contexts: Context of each question.

        Returns:
            Reply to each question. The text is empty if the writer abstains.
        """


@dataclass(eq=False)
class PromptedWriter(PromptedModel):
    """Answer each question with one request to a chat model.

    Duplicate questions with the same context are sent once. If the form of the prompt is a JSON schema, the answer must
    be an object with the string ``answer``. If the form is a regular expression, the answer must match it. Any other
    answer has the outcome ``unusable`` and an empty text.

    Attributes:
        model: Chat model.
        prompt: Prompt with the placeholders ``{context}`` and ``{question}``.
        cache: Folder in which replies are stored for later runs. If None, replies are not stored.
    """

    placeholders = ("context", "question")

    @property
    def name(self) -> str:
        """Name and fingerprint of the prompt."""
        return f"{self.prompt.name} {self.prompt.fingerprint}"

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer each question from its context, even if the context is empty, because the model may abstain.

        Args:
            questions: ``Q`` questions.
            contexts: Context of each question.

        Returns:
            Reply to each question. The text is empty if the model abstains.
        """
        pairs = zip(questions, contexts, strict=True)
        messages = [self.prompt.fill(context=context.text, question=question) for question, context in pairs]
        return [self._answer(reply) for reply in self.ask(messages)]

    def _answer(self, reply: Reply) -> Reply:
        text = reply.text
        if text and self.prompt.form is not None:
            try:
                text = answer_in_form(text, self.prompt.form)
            except ValueError:
                return replace(reply, text="", outcome=UNUSABLE)
        abstention = normalize_answer(self.prompt.abstention or "")
        # Compare whole words, because "Canada" contains "na", the normalised "N/A".
        if abstention and f" {abstention} " in f" {normalize_answer(text)} ":
            return replace(reply, text="", outcome=ANSWERED)  # an abstention may have been truncated afterwards
        return replace(reply, text=text.strip())


def answer_in_form(text: str, form: str) -> str:
    """Return the answer in a text that has a form.

    Args:
        text: Text of the model.
        form: JSON schema of an object with the string ``answer``, or regular expression.

    Returns:
        String ``answer`` of the object, or the text itself.

    Raises:
        UserError: If ``text`` does not have the form.

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
        raise UserError(f"the answer must have the form {form[:200]!r}, got {text[:80]!r}")
    return answer


@dataclass(frozen=True)
class CitedReply(Reply):
    """Answer to one question, with its sources.

    Attributes:
        citations: Indices of the cited passages in the context, ascending.
        helpfulness: Helpfulness of the answer from each part of the context, from 0 to 100. None if that answer is
            unusable.
    """

    citations: tuple[int, ...] = ()
    helpfulness: tuple[int | None, ...] = ()


class PartialAnswer(NamedTuple):
    """Answer from a part of the passages, or the answer merged from all partial answers.

    Attributes:
        text: Text of the answer.
        helpfulness: Helpfulness from 0 to 100. A merged answer has 100.
        numbers: Numbers of the cited passages, counted from 1.
    """

    text: str
    helpfulness: int
    numbers: tuple[int, ...]


class Request(NamedTuple):
    """Request for a partial or merged answer.

    Attributes:
        row: Index of the question.
        message: Filled prompt.
        citable: Numbers of the passages that the answer may cite, 1-based.
    """

    row: int
    message: str
    citable: set[int]


@dataclass(eq=False)
class MapReduceWriter:
    """Answer each question from parts of its shuffled passages, and merge the most helpful partial answers.

    Each partial answer has a helpfulness from 0 to 100. Partial answers with 0 are dropped. The others fill one context
    in descending order of helpfulness, up to the first that does not fit, but always at least one. The prompts ask for
    citations.

    Tokens and requests of a question are totals over all its parts. The writer abstains if no part helps, if the
    question is blank, and if the context is empty. The outcome of a question is ``failed``, ``rejected`` or ``refused``
    if all its requests had this outcome. Otherwise the outcome is ``unusable`` if no partial answer is usable or the
    merged answer is not.

    Source: Edge et al., *From Local to Global: A GraphRAG Approach to Query-Focused Summarization*, 2024, section
    3.1.6.

    Attributes:
        model: Chat model.
        tokenizer: Tokenizer that counts the tokens of passages and partial answers.
        part_tokens: Maximum number of tokens of a part. A longer passage is a part by itself.
        context_tokens: Maximum number of tokens of the merged partial answers.
        seed: Random seed of the shuffling. The order depends only on the seed and the question.
        tries: Maximum number of requests per part until an answer is usable.
        map_prompt: Prompt for partial answers, with the placeholders ``{question}`` and ``{summaries}``.
        reduce_prompt: Prompt for merged answers, with the placeholders ``{question}`` and ``{answers}``.
        cache: Folder in which replies are stored for later runs. If None, replies are not stored.
    """

    model: ReplyingModel
    _: KW_ONLY
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)
    part_tokens: int = 8000
    context_tokens: int = 8000
    seed: int = 0
    tries: int = 3
    map_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_map"))
    reduce_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_reduce"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_counts(part_tokens=self.part_tokens, context_tokens=self.context_tokens)
        self.map_prompt.fill(question="", summaries="")
        self.reduce_prompt.fill(question="", answers="")

    @property
    def name(self) -> str:
        """Names and fingerprints of the prompts."""
        return ", ".join(f"{prompt.name} {prompt.fingerprint}" for prompt in (self.map_prompt, self.reduce_prompt))

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer each question from the passages of its context. The parts of all questions are sent together.

        Args:
            questions: ``Q`` questions.
            contexts: Context of each question.

        Returns:
            :class:`CitedReply` to each question. The text is empty if the writer abstains.
        """
        keys = [(question, context.passages) for question, context in zip(questions, contexts, strict=True)]
        distinct = list(dict.fromkeys(keys))
        model = RecordedModel(self.model, self.cache)
        requests: list[Request] = []
        for row, (question, passages) in enumerate(distinct):
            for numbers in self._parts(question, passages):
                summaries = "\n\n".join(f"[{number}] {passages[number - 1]}" for number in numbers)
                message = self.map_prompt.fill(question=question, summaries=summaries)
                requests.append(Request(row, message, set(numbers)))
        answers = self._ask(model, requests, self.map_prompt)
        partial_answers = grouped(zip((request.row for request in requests), answers, strict=True), len(distinct))
        final: list[Request] = []
        for row, (question, _) in enumerate(distinct):
            if fitting := self._fitting(partial_answers[row]):
                message = self.reduce_prompt.fill(question=question, answers="\n\n".join(map(_prompt_line, fitting)))
                citable = {number for answer in fitting for number in answer.numbers}
                final.append(Request(row, message, citable))
        merged_answers = self._ask(model, final, self.reduce_prompt)
        merged = dict(zip((request.row for request in final), merged_answers, strict=True))
        messages = grouped(((request.row, request.message) for request in (*requests, *final)), len(distinct))
        replies = {
            key: _reply(merged.get(row), partial_answers[row], model.replies_to(messages[row]), len(messages[row]))
            for row, key in enumerate(distinct)
        }
        return [replies[key] for key in keys]

    def _parts(self, question: str, passages: Sequence[str]) -> list[list[int]]:
        """Shuffle a question's passages, and divide their numbers, which count from 1, into parts."""
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
        """Return the most helpful partial answers that fit together, and at least one if any helps."""
        helpful = sorted((answer for answer in answers if answer and answer.helpfulness), key=lambda a: -a.helpfulness)
        totals = accumulate(count_tokens(self.tokenizer, [answer.text for answer in helpful]))
        return helpful[: max(1, sum(total <= self.context_tokens for total in totals))]

    def _ask(self, model: RecordedModel, requests: Sequence[Request], prompt: Prompt) -> list[PartialAnswer | None]:
        """Ask for partial answers, and reject answers that cite passages outside their part."""

        def check(index: int, answer: PartialAnswer) -> None:
            citable = requests[index].citable
            if unknown := sorted(set(answer.numbers) - citable):
                raise UserError(f"`summaries` must be among {sorted(citable)}, got {unknown[0]}")

        parse = partial(parse_partial_answer, is_final=prompt is self.reduce_prompt)
        settings: dict[str, Any] = {"system": prompt.instructions(), "form": prompt.form, "tries": self.tries}
        messages = [request.message for request in requests]
        return ask_strictly(model, messages, parse=parse, check=check, **settings)


def _prompt_line(answer: PartialAnswer) -> str:
    """Return a partial answer as the prompt for merged answers contains it."""
    numbers = ", ".join(map(str, answer.numbers))
    return f"(helpfulness {answer.helpfulness}; summaries {numbers}) {answer.text}"


def parse_partial_answer(content: str, *, is_final: bool = False) -> PartialAnswer:
    """Parse a partial or merged answer.

    Args:
        content: JSON object with ``answer``, ``summaries`` and, for a partial answer, ``helpfulness``.
        is_final: Whether the answer is a merged one, which has no helpfulness.

    Returns:
        Parsed answer.

    Raises:
        UserError: If ``content`` has another form, or an answer with a helpfulness above 0 lacks its text or citations.
    """
    fields = {} if is_final else {"helpfulness": Annotated[int, Field(ge=0, le=MAX_HELPFULNESS)]}
    parsed = parse_object_answer(content, answer=str, **fields, summaries=list[int])
    helpfulness = MAX_HELPFULNESS if is_final else parsed.helpfulness
    if helpfulness and not (parsed.answer and parsed.summaries):
        raise UserError("an answer with `helpfulness` above 0 must have a text and cite at least one summary")
    return PartialAnswer(parsed.answer, helpfulness, tuple(sorted(set(parsed.summaries))))


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
    """Return the total of ``input_tokens`` or ``output_tokens`` over the replies that arrived.

    Args:
        replies: Replies. Failed and rejected requests are ignored.
        name: ``input_tokens`` or ``output_tokens``.

    Returns:
        Total, or None if no reply arrived or one has no count.
    """
    counts = [getattr(reply, name) for reply in replies if reply.has_come]
    return None if not counts or None in counts else sum(counts)
