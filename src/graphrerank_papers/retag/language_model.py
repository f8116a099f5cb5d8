"""A language model's parts of ReTAG: topics of a collection, of notes and of questions, and keywords of a question."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.language_models.strict_answers import ask_strictly, read_json


def mine_topics(
    model: ChatModel,
    batches: Sequence[Sequence[str]],
    *,
    num_topics: int,
    tries: int = 3,
    mine: Prompt | None = None,
    merge: Prompt | None = None,
) -> tuple[list[str], int]:
    """Find at most ``num_topics`` topics of a collection by merging those of each batch of notes.

    Source: ReTAG, 2025, which mines topics by a global question over the corpus. ``mine`` has the place ``{notes}``,
    ``merge`` ``{topics}``, both ``{limit}`` in their system messages; None for those that ship.

    Returns:
        Each topic as "name: description", the most important first; and the number of batches skipped for lack of a
        usable answer.
    """
    read = partial(parse_topics, limit=num_topics)
    mine, merge = mine or shipped_prompt("retag_topics"), merge or shipped_prompt("retag_merged_topics")
    questions = [mine.fill(notes="\n".join(f"- {note}" for note in batch)) for batch in batches]
    answers = ask_strictly(
        model, questions, system=mine.instructions(limit=num_topics), parse=read, tries=tries, form=mine.form
    )
    mined = [topics for topics in answers if topics is not None]
    num_skipped = len(answers) - len(mined)
    if len(mined) < 2:
        return (mined[0] if mined else []), num_skipped
    listed = "\n".join(f"- {topic}" for topic in dict.fromkeys(topic for topics in mined for topic in topics))
    question, system = merge.fill(topics=listed), merge.instructions(limit=num_topics)
    (merged,) = ask_strictly(model, [question], system=system, parse=read, tries=tries, form=merge.form)
    if merged is None:
        raise ValueError(f"the language model gave no usable list of topics in {tries} tries; choose another one")
    return merged, num_skipped


def relate_to_topics(
    model: ChatModel,
    notes: Sequence[str],
    topics: Sequence[str],
    *,
    batch_size: int = 40,
    tries: int = 3,
    prompt: Prompt | None = None,
) -> tuple[list[list[int]], int]:
    """Find the topics to which each note is relevant, ``batch_size`` notes per request.

    ``prompt`` has the places ``{topics}`` and ``{notes}``; None for the one that ships.

    Returns:
        Ascending topic indices of each note; and the number of batches skipped, whose notes have no topic.
    """
    prompt = prompt or shipped_prompt("retag_relevance")
    batches = [notes[start : start + batch_size] for start in range(0, len(notes), batch_size)] if topics else []
    relevant: list[list[int]] = []
    num_skipped = 0
    for size in sorted({len(batch) for batch in batches}, reverse=True):  # the last batch may be shorter
        questions = [
            prompt.fill(topics=_numbered(topics), notes=_numbered(batch)) for batch in batches if len(batch) == size
        ]
        read = partial(parse_relevant, num_notes=size, num_topics=len(topics))
        system = prompt.instructions()
        for answer in ask_strictly(model, questions, system=system, parse=read, tries=tries, form=prompt.form):
            num_skipped += answer is None
            relevant += [[] for _ in range(size)] if answer is None else answer
    return relevant if topics else [[] for _ in notes], num_skipped


def classify_questions(
    model: ChatModel, questions: Sequence[str], topics: Sequence[str], *, tries: int = 3, prompt: Prompt | None = None
) -> list[int | None]:
    """Choose the topic of each question; None for none of them, without a usable answer, and for a blank question.

    Source: ReTAG, section 3.2.2: a language model routes a question to one topic, or to the general summaries.
    ``prompt`` has the places ``{topics}`` and ``{question}``; None for the one that ships.
    """
    prompt = prompt or shipped_prompt("retag_classification")
    chosen: list[int | None] = [None] * len(questions)
    rows = [row for row, question in enumerate(questions) if question.strip()] if topics else []
    filled = [prompt.fill(topics=_numbered(topics), question=questions[row]) for row in rows]
    read = partial(parse_topic, num_topics=len(topics))
    answers = ask_strictly(model, filled, system=prompt.instructions(), parse=read, tries=tries, form=prompt.form)
    for row, number in zip(rows, answers, strict=True):
        chosen[row] = number - 1 if number else None
    return chosen


def generate_keywords(
    model: ChatModel,
    questions: Sequence[str],
    descriptions: Sequence[str],
    *,
    num_keywords: int,
    tries: int = 3,
    prompt: Prompt | None = None,
) -> list[list[str]]:
    """Generate keywords that the answer to each of ``B`` questions may contain, given what is searched.

    Source: ReTAG, section 3.3: keywords generated from the question and a description of the data set. A blank
    question has no keywords and is not sent; nor has one without a usable answer. ``prompt`` has the places
    ``{collection}`` and ``{question}``, and ``{limit}`` in the system message; None for the one that ships.
    """
    prompt = prompt or shipped_prompt("retag_keywords")
    rows = [row for row, question in enumerate(questions) if question.strip()]
    filled = [prompt.fill(collection=descriptions[row], question=questions[row]) for row in rows]
    system = prompt.instructions(limit=num_keywords)
    answers = ask_strictly(model, filled, system=system, parse=parse_keywords, tries=tries, form=prompt.form)
    keywords: list[list[str]] = [[] for _ in questions]
    for row, answer in zip(rows, answers, strict=True):
        keywords[row] = (answer or [])[:num_keywords]
    return keywords


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse the number of a topic from 1, 0 for none, strictly."""
    number = _only(content, "topic")
    if type(number) is not int or not 0 <= number <= num_topics:
        raise ValueError(f'the answer must be {{"topic": 0 to {num_topics}}}, got {content[:80]!r}')
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse a list of 1 to ``limit`` topics, strictly: each as "name: description"."""
    rows = _only(content, "topics")
    if not isinstance(rows, list) or not 0 < len(rows) <= limit:
        raise ValueError(f'the answer must be {{"topics": [...]}} with 1 to {limit} topics, got {content[:80]!r}')
    topics = []
    for row in rows:
        if not isinstance(row, dict) or set(row) != {"name", "description"}:
            raise ValueError(f"a topic must have a name and a description, got {str(row)[:80]!r}")
        if not all(isinstance(text, str) and text.strip() for text in row.values()):
            raise ValueError(f"name and description must be texts, got {str(row)[:80]!r}")
        topics.append(f"{row['name'].strip()}: {row['description'].strip()}")
    return list(dict.fromkeys(topics))


def parse_relevant(content: str, *, num_notes: int, num_topics: int) -> list[list[int]]:
    """Parse the topics of each note, strictly: ascending indices."""
    rows = _only(content, "relevant")
    if not isinstance(rows, list) or len(rows) != num_notes:
        raise ValueError(f'the answer must be {{"relevant": [...]}} with {num_notes} lists, got {content[:80]!r}')
    for row in rows:
        if not isinstance(row, list) or not all(type(number) is int and 1 <= number <= num_topics for number in row):
            raise ValueError(f"each list must hold topic numbers from 1 to {num_topics}, got {str(row)[:80]!r}")
    return [sorted({number - 1 for number in row}) for row in rows]


def parse_keywords(content: str) -> list[str]:
    """Parse a list of keywords, strictly: texts that are not blank; duplicates are dropped."""
    keywords = _only(content, "keywords")
    if not isinstance(keywords, list) or not all(isinstance(word, str) and word.strip() for word in keywords):
        raise ValueError(f'the answer must be {{"keywords": ["...", ...]}}, got {content[:80]!r}')
    return list(dict.fromkeys(word.strip() for word in keywords))


def _only(content: str, key: str) -> Any:
    """Return the one entry of a JSON object; None if the answer is anything else."""
    answer = read_json(content)
    return answer.get(key) if isinstance(answer, dict) and len(answer) == 1 else None


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
