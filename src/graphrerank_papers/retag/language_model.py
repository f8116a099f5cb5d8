"""A language model's parts of ReTAG: topics of a collection, of notes and of questions, and keywords of a question."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, StringConstraints

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_object

BATCH_NOTES = 40  # related to topics in one request

Answer = TypeVar("Answer")
_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Topic(BaseModel, extra="forbid", strict=True):
    name: _Text
    description: _Text


@dataclass(frozen=True)
class ReTAGPrompts:
    """The prompts of a language model that builds and searches a ReTAG index."""

    _: KW_ONLY
    # with `{notes}`, and `{limit}` in the system message
    topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_topics"))
    # with `{topics}`, and `{limit}` in the system message
    merged_topics: Prompt = field(default_factory=partial(shipped_prompt, "retag_merged_topics"))
    # with `{topics}` and `{notes}`
    relevance: Prompt = field(default_factory=partial(shipped_prompt, "retag_relevance"))
    summary: Prompt = field(default_factory=partial(shipped_prompt, "summary"))  # see `write_summaries`
    # with `{topics}` and `{question}`
    classification: Prompt = field(default_factory=partial(shipped_prompt, "retag_classification"))
    # with `{collection}` and `{question}`, and `{limit}` in the system message
    keywords: Prompt = field(default_factory=partial(shipped_prompt, "retag_keywords"))

    @property
    def of_index(self) -> str:
        """Changes whenever those do that an index is built by."""
        return repr([prompt.fingerprint for prompt in (self.topics, self.merged_topics, self.relevance, self.summary)])


def mine_topics(
    model: ChatModel, prompts: ReTAGPrompts, batches: Sequence[Sequence[str]], *, num_topics: int
) -> tuple[list[str], int]:
    """Find at most ``num_topics`` topics of a collection by merging those of each batch of notes.

    Source: ReTAG, 2025, which mines topics by a global question over the corpus.

    Returns:
        Each topic as "name: description", the most important first; and the number of batches skipped for lack of a
        usable answer.
    """
    read, limits = partial(parse_topics, limit=num_topics), {"limit": num_topics}
    questions = [prompts.topics.fill(notes="\n".join(f"- {note}" for note in batch)) for batch in batches]
    answers = _ask(model, prompts.topics, questions, read, **limits)
    mined = [topics for topics in answers if topics is not None]
    num_skipped = len(answers) - len(mined)
    if len(mined) < 2:
        return (mined[0] if mined else []), num_skipped
    listed = "\n".join(f"- {topic}" for topic in dict.fromkeys(topic for topics in mined for topic in topics))
    (merged,) = _ask(model, prompts.merged_topics, [prompts.merged_topics.fill(topics=listed)], read, **limits)
    if merged is None:
        raise ValueError("the language model gave no usable list of topics in 3 tries; choose another one")
    return merged, num_skipped


def relate_to_topics(
    model: ChatModel, prompt: Prompt, notes: Sequence[str], topics: Sequence[str]
) -> tuple[list[list[int]], int]:
    """Find the topics to which each note is relevant, ``BATCH_NOTES`` per request.

    Returns ascending topic indices of each note, and the number of batches skipped, whose notes have no topic.
    """
    if not topics:
        return [[] for _ in notes], 0
    batches = [notes[start : start + BATCH_NOTES] for start in range(0, len(notes), BATCH_NOTES)]
    relevant: list[list[int]] = []
    num_skipped = 0
    for size in sorted({len(batch) for batch in batches}, reverse=True):  # the last batch may be shorter
        questions = [
            prompt.fill(topics=_numbered(topics), notes=_numbered(batch)) for batch in batches if len(batch) == size
        ]
        read = partial(parse_relevant, num_notes=size, num_topics=len(topics))
        for answer in _ask(model, prompt, questions, read):
            num_skipped += answer is None
            relevant += [[] for _ in range(size)] if answer is None else answer
    return relevant, num_skipped


def classify_questions(
    model: ChatModel, prompt: Prompt, topics: Sequence[str], questions: Sequence[str]
) -> list[int | None]:
    """Choose the topic of each question; None for none of them, without a usable answer, and for a blank question.

    Source: ReTAG, section 3.2.2: a language model routes a question to one topic, or to the general summaries.
    """
    rows = [row for row, question in enumerate(questions) if question.strip()] if topics else []
    filled = [prompt.fill(topics=_numbered(topics), question=questions[row]) for row in rows]
    numbers = dict(zip(rows, _ask(model, prompt, filled, partial(parse_topic, num_topics=len(topics))), strict=True))
    chosen = [numbers.get(row) for row in range(len(questions))]
    return [number - 1 if number else None for number in chosen]


def generate_keywords(
    model: ChatModel, prompt: Prompt, questions: Sequence[str], descriptions: Sequence[str], *, num_keywords: int
) -> list[list[str]]:
    """Generate keywords that the answer to each of ``B`` questions may contain, given what is searched.

    Source: ReTAG, section 3.3: keywords generated from the question and a description of the data set. A blank
    question has no keywords and is not sent; nor has one without a usable answer.
    """
    rows = [row for row, question in enumerate(questions) if question.strip()]
    filled = [prompt.fill(collection=descriptions[row], question=questions[row]) for row in rows]
    answers = dict(zip(rows, _ask(model, prompt, filled, parse_keywords, limit=num_keywords), strict=True))
    return [(answers.get(row) or [])[:num_keywords] for row in range(len(questions))]


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse the number of a topic from 1, 0 for none, strictly."""
    number: int = read_object(content, topic=Annotated[int, Field(ge=0, le=num_topics)]).topic
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse a list of 1 to ``limit`` topics, strictly: each as "name: description"."""
    topics = read_object(content, topics=Annotated[list[_Topic], Field(min_length=1, max_length=limit)]).topics
    return list(dict.fromkeys(f"{topic.name}: {topic.description}" for topic in topics))


def parse_relevant(content: str, *, num_notes: int, num_topics: int) -> list[list[int]]:
    """Parse the topics of each note, strictly: ascending indices."""
    topics = list[Annotated[int, Field(ge=1, le=num_topics)]]
    rows = read_object(content, relevant=Annotated[list[topics], Field(min_length=num_notes, max_length=num_notes)])
    return [sorted({number - 1 for number in row}) for row in rows.relevant]


def parse_keywords(content: str) -> list[str]:
    """Parse a list of keywords, strictly: texts that are not blank; duplicates are dropped."""
    return list(dict.fromkeys(read_object(content, keywords=list[_Text]).keywords))


def _ask(
    model: ChatModel, prompt: Prompt, questions: Sequence[str], parse: Callable[[str], Answer], **settings: int
) -> list[Answer | None]:
    return ask_strictly(model, questions, system=prompt.instructions(**settings), parse=parse, form=prompt.form)


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
