"""A language model's parts of ReTAG: topics of a collection, of notes and of questions, and keywords of a question."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field, StringConstraints

from graphrerank.checks import UserError
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

    Source: ReTAG, 2025, which mines topics by a global question over the corpus. Returns each topic as "name:
    description", the most important first; and the number of batches skipped for lack of a usable answer.
    """
    read = partial(parse_topics, limit=num_topics)
    questions = [prompts.topics.fill(notes="\n".join(f"- {note}" for note in batch)) for batch in batches]
    answers = _ask(model, prompts.topics, questions, read, limit=num_topics)
    mined = [topics for topics in answers if topics is not None]
    num_skipped = len(answers) - len(mined)
    if len(mined) < 2:
        return (mined[0] if mined else []), num_skipped
    listed = "\n".join(f"- {topic}" for topic in dict.fromkeys(topic for topics in mined for topic in topics))
    question = prompts.merged_topics.fill(topics=listed)
    (merged,) = _ask(model, prompts.merged_topics, [question], read, limit=num_topics)
    if merged is None:
        raise UserError("the language model gave no usable list of topics in 3 tries; choose another one")
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

    def check(index: int, answer: Sequence[Sequence[int]]) -> None:
        if len(answer) != len(batches[index]):
            raise UserError(f"`relevant` must have as many lists as notes, {len(batches[index])}, got {len(answer)}")

    questions = [prompt.fill(topics=_numbered(topics), notes=_numbered(batch)) for batch in batches]
    answers = _ask(model, prompt, questions, partial(parse_relevant, num_topics=len(topics)), check=check)
    pairs = zip(batches, answers, strict=True)
    relevant = [row for batch, answer in pairs for row in (answer or [[] for _ in batch])]
    return relevant, sum(answer is None for answer in answers)


def classify_questions(
    model: ChatModel, prompt: Prompt, topics: Sequence[str], questions: Sequence[str]
) -> list[int | None]:
    """Choose the topic of each question; None for none of them, without a usable answer, and for a blank question.

    Source: ReTAG, section 3.2.2: a language model routes a question to one topic, or to the general summaries.
    """
    if not topics:
        return [None for _ in questions]
    listed, read = _numbered(topics), partial(parse_topic, num_topics=len(topics))
    filled = [prompt.fill(topics=listed, question=text) if text.strip() else None for text in questions]
    return [number - 1 if number else None for number in _ask(model, prompt, filled, read)]


def generate_keywords(
    model: ChatModel, prompt: Prompt, questions: Sequence[str], descriptions: Sequence[str], *, num_keywords: int
) -> list[list[str]]:
    """Generate keywords that the answer to each of ``B`` questions may contain, given what is searched.

    Source: ReTAG, section 3.3: keywords generated from the question and a description of the data set. A blank
    question has no keywords and is not sent; nor has one without a usable answer.
    """
    filled = [
        prompt.fill(collection=described, question=text) if text.strip() else None
        for text, described in zip(questions, descriptions, strict=True)
    ]
    answers = _ask(model, prompt, filled, parse_keywords, limit=num_keywords)
    return [(answer or [])[:num_keywords] for answer in answers]


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse the number of a topic from 1, 0 for none, strictly."""
    number: int = read_object(content, topic=Annotated[int, Field(ge=0, le=num_topics)]).topic
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse a list of 1 to ``limit`` topics, strictly: each as "name: description"."""
    topics = read_object(content, topics=Annotated[list[_Topic], Field(min_length=1, max_length=limit)]).topics
    return list(dict.fromkeys(f"{topic.name}: {topic.description}" for topic in topics))


def parse_relevant(content: str, *, num_topics: int) -> list[list[int]]:
    """Parse the topics of each note, strictly: ascending indices."""
    rows = read_object(content, relevant=list[list[Annotated[int, Field(ge=1, le=num_topics)]]])
    return [sorted({number - 1 for number in row}) for row in rows.relevant]


def parse_keywords(content: str) -> list[str]:
    """Parse a list of keywords, strictly: texts that are not blank; duplicates are dropped."""
    return list(dict.fromkeys(read_object(content, keywords=list[_Text]).keywords))


def _ask(
    model: ChatModel,
    prompt: Prompt,
    questions: Sequence[str | None],
    parse: Callable[[str], Answer],
    *,
    check: Callable[[int, Answer], None] | None = None,
    **settings: int,
) -> list[Answer | None]:
    """Ask questions; None for a question that is None or has no usable answer."""
    rows, texts = [row for row, text in enumerate(questions) if text is not None], list(filter(None, questions))
    system = prompt.instructions(**settings)
    replies = ask_strictly(model, texts, system=system, parse=parse, check=check, form=prompt.form)
    answers = dict(zip(rows, replies, strict=True))
    return [answers.get(row) for row in range(len(questions))]


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
