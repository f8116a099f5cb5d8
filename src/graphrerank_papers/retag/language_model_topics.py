"""Topics of a document collection by a language model, and the topics of single notes."""

from collections.abc import Sequence
from functools import partial

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
        raise ValueError(f"the language model gave no usable list of topics in {tries} tries; ask another one")
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
    listed = _numbered(topics)
    batches = [notes[start : start + batch_size] for start in range(0, len(notes), batch_size)] if topics else []
    relevant: list[list[int]] = []
    num_skipped = 0
    sizes = sorted({len(batch) for batch in batches}, reverse=True)  # the last batch may be shorter
    for size in sizes:
        questions = [prompt.fill(topics=listed, notes=_numbered(batch)) for batch in batches if len(batch) == size]
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
    asked = [prompt.fill(topics=_numbered(topics), question=questions[row]) for row in rows]
    read = partial(parse_topic, num_topics=len(topics))
    system = prompt.instructions()
    answers = ask_strictly(model, asked, system=system, parse=read, tries=tries, form=prompt.form)
    for row, number in zip(rows, answers, strict=True):
        chosen[row] = number - 1 if number else None
    return chosen


def parse_topic(content: str, *, num_topics: int) -> int:
    """Parse the number of a topic from 1, 0 for none, strictly."""
    answer = read_json(content)
    number = answer.get("topic") if isinstance(answer, dict) and set(answer) == {"topic"} else None
    if type(number) is not int or not 0 <= number <= num_topics:
        raise ValueError(f'the answer must be {{"topic": 0 to {num_topics}}}, got {content[:80]!r}')
    return number


def parse_topics(content: str, *, limit: int) -> list[str]:
    """Parse a list of 1 to ``limit`` topics, strictly: each as "name: description"."""
    answer = read_json(content)
    rows = answer.get("topics") if isinstance(answer, dict) and set(answer) == {"topics"} else None
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
    answer = read_json(content)
    rows = answer.get("relevant") if isinstance(answer, dict) and set(answer) == {"relevant"} else None
    if not isinstance(rows, list) or len(rows) != num_notes:
        raise ValueError(f'the answer must be {{"relevant": [...]}} with {num_notes} lists, got {content[:80]!r}')
    for row in rows:
        if not isinstance(row, list) or not all(type(number) is int and 1 <= number <= num_topics for number in row):
            raise ValueError(f"each list must hold topic numbers from 1 to {num_topics}, got {str(row)[:80]!r}")
    return [sorted({number - 1 for number in row}) for row in rows]


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
