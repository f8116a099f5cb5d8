"""Answers by map and reduce over many passages, with citations, as GraphRAG and ReTAG write them."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.reply import ANSWERED, FAILED, REFUSED, REJECTED, UNUSABLE, Reply, ReplyingModel
from graphrerank.text import Tokenizer, WordTokenizer
from graphrerank_papers.answers.map_reduce import CitedAnswer, MapReduceAnswers, Summary
from graphrerank_papers.answers.packing import Context
from graphrerank_papers.answers.recorded_model import RecordedModel

LOST = {FAILED, REFUSED, REJECTED}


@dataclass(frozen=True)
class CitedReply(Reply):
    """The answer to one question, with what it rests on."""

    citations: tuple[int, ...] = ()  # positions of the cited passages in the context, ascending
    helpfulness: tuple[int | None, ...] = ()  # of each part that was read, from 0 to 100; None for an unusable answer


@dataclass(eq=False)
class MapReduceWriter:
    """Answers from each part of a context, and puts the partial answers together (:class:`MapReduceAnswers`).

    Tokens and requests of a question are those of all its parts. It is ``unusable`` where no part has a usable answer,
    or the answer put together has none; ``failed``, ``rejected`` or ``refused`` where all its requests were; where no
    part helps, it abstains. Equal questions with equal contexts are asked once.
    """

    model: ReplyingModel
    _: KW_ONLY
    tokenizer: Tokenizer = field(default_factory=WordTokenizer)  # measures passages and answers
    part_tokens: int = 8000  # of the passages that are answered from at once
    context_tokens: int = 8000  # of the partial answers that are put together
    seed: int = 0  # of the order in which passages are read
    tries: int = 3  # requests of each part until an answer is usable
    map_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_map"))  # see `MapReduceAnswers`
    reduce_prompt: Prompt = field(default_factory=partial(shipped_prompt, "retag_reduce"))
    cache: str | Path | None = None  # folder of replies, which a later run reads; None for no cache

    def __post_init__(self) -> None:
        self._reader(RecordedModel(self.model))  # checks the settings

    @property
    def name(self) -> str:
        """The prompts' names and fingerprints."""
        return ", ".join(f"{prompt.name} {prompt.fingerprint}" for prompt in (self.map_prompt, self.reduce_prompt))

    def write(self, questions: Sequence[str], contexts: Sequence[Context]) -> list[Reply]:
        """Answer ``Q`` questions from the passages of a context each."""
        recorder = RecordedModel(self.model, self.cache)
        keys = [(question, context.passages) for question, context in zip(questions, contexts, strict=True)]
        asked = list(dict.fromkeys(keys))
        answers = self._reader(recorder).answer(
            [question for question, _ in asked],
            [[Summary(str(place), text) for place, text in enumerate(passages)] for _, passages in asked],
        )
        replies = {key: _reply(answer, recorder) for key, answer in zip(asked, answers, strict=True)}
        return [replies[key] for key in keys]

    def _reader(self, model: RecordedModel) -> MapReduceAnswers:
        return MapReduceAnswers(
            model,
            self.tokenizer,
            part_tokens=self.part_tokens,
            context_tokens=self.context_tokens,
            seed=self.seed,
            tries=self.tries,
            map_prompt=self.map_prompt,
            reduce_prompt=self.reduce_prompt,
        )


def _reply(answer: CitedAnswer, recorder: RecordedModel) -> CitedReply:
    """Sum up what became of a question's requests."""
    replies = recorder.replies_to(answer.messages)
    read = [score for score in answer.helpfulness if score is not None]
    outcome = ANSWERED
    if not answer.text and (any(read) or (answer.helpfulness and not read)):  # to be put together, or no part usable
        outcomes = {reply.outcome for reply in replies}
        outcome = outcomes.pop() if len(outcomes) == 1 and outcomes <= LOST else UNUSABLE
    told: dict[str, Any] = {}
    for name in ("input_tokens", "output_tokens"):
        counts = [getattr(reply, name) for reply in replies if reply.has_come]
        told[name] = None if None in counts else sum(counts)
    return CitedReply(
        answer.text,
        outcome,
        next((reply.model for reply in reversed(replies) if reply.model), ""),
        attempts=1 + sum(reply.attempts for reply in replies) - len(answer.messages) if replies else 1,
        problem=next((reply.problem for reply in reversed(replies) if reply.problem), ""),
        citations=tuple(int(name) for name in answer.citations),
        helpfulness=answer.helpfulness,
        **told,
    )
