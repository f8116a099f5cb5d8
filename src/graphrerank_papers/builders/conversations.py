"""Build data sets of long conversations: LoCoMo and LongMemEval.

A turn is a document. It is joined to the preceding turn (``next``) and to the preceding turn of its speaker
(``same_speaker``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFiles

#: LoCoMo's category of questions without an answer in the conversation.
ADVERSARIAL = 5
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D(\d+):(\d+)")


class Turn(NamedTuple):
    """Turn of one speaker.

    Attributes:
        doc_id: Id of the turn in the corpus.
        speaker: Name or role of the speaker.
        text: Text of the turn. May be empty.
    """

    doc_id: str
    speaker: str
    text: str


class ChatSession(NamedTuple):
    """Session of a conversation.

    Attributes:
        name: Id of the session.
        date: Date and time as the authors write them, or an empty string.
        turns: Turns in order.
    """

    name: str
    date: str
    turns: Sequence[Turn]


@builder("locomo", "LoCoMo", "CC BY-NC 4.0", "https://github.com/snap-research/locomo")
def locomo(files: RawFiles, writer: DatasetWriter) -> None:
    """Build LoCoMo: questions about very long conversations of two people, with the turns that contain the evidence.

    The ten conversations are one corpus. ``metadata.conversation`` of a turn or a question names its conversation.
    Questions of category 5 have no answer in the conversation. Their judgements are in the split ``adversarial``, all
    others in ``test``.

    Source: Maharana et al. 2024, LoCoMo.

    Args:
        files: Files that include one ``locomo*.json``.
        writer: Writer of the data set folder.

    Raises:
        UserError: If the file is missing or ambiguous.
    """
    conversations: list[tuple[str, list[ChatSession]]] = []
    for record in files.one("locomo*.json").records():
        name = str(record["sample_id"])
        sessions = list(_locomo_sessions(name, record["conversation"]))
        conversations.append((name, sessions))
        turn_ids = {turn.doc_id for session in sessions for turn in session.turns}
        for number, question in enumerate(record["qa"]):
            query_id, category = f"{name}:q{number}", question.get("category")
            answer = question.get("answer", question.get("adversarial_answer"))
            writer.query(query_id, question["question"], answer=answer, category=category, conversation=name)
            relevant = _evidence(writer, query_id, question.get("evidence") or [], name, turn_ids)
            writer.judge("adversarial" if category == ADVERSARIAL else "test", query_id, *relevant)
    for name, sessions in conversations:
        write_conversation(writer, sessions, conversation=name)
    writer.notes.append("A question is about one conversation; the corpus contains all of them.")


@builder("longmemeval", "LongMemEval", "MIT", "https://github.com/xiaowu0162/LongMemEval")
def longmemeval(files: RawFiles, writer: DatasetWriter) -> None:
    """Build LongMemEval: questions about a user's past chats with an assistant, with the turns that contain the answer.

    A question comes with the sessions of its history. The corpus is the union of all sessions, and
    ``metadata.sessions`` of a question lists those of its history. Dates belong to a history, not to a session, and
    are in the metadata of the question. Questions whose id ends with ``_abs`` are about something that never happened.
    The authors do not use them for retrieval, and their judgements are in the split ``abstention``.

    Source: Wu et al. 2025, LongMemEval.

    Args:
        files: Files that include one ``longmemeval*``.
        writer: Writer of the data set folder.

    Raises:
        ValueError: If the lists of sessions of a question differ in length.
        UserError: If the file is missing or ambiguous.
    """
    turns_of: dict[str, list[tuple[str, str]]] = {}  # speaker and text of each turn, keyed by session
    for record in files.one("longmemeval*.json", "longmemeval*").records():
        query_id = str(record["question_id"])
        sessions, relevant = [], []
        for session_id, turns in zip(record["haystack_session_ids"], record["haystack_sessions"], strict=True):
            texts = [(turn["role"], turn["content"].strip()) for turn in turns]
            name = _session_name(session_id, texts, turns_of)
            sessions.append(name)
            relevant += [f"{name}:{i}" for i, turn in enumerate(turns) if turn.get("has_answer")]
        answer, kind, date = (record.get(key) for key in ("answer", "question_type", "question_date"))
        history = {"date": date, "sessions": sessions, "session_dates": record.get("haystack_dates")}
        writer.query(query_id, record["question"], answer=answer, type=kind, **history)
        is_absent = query_id.endswith("_abs")
        if not relevant:
            reason = "the question has no answer in its history" if is_absent else "no turn is marked as the answer"
            writer.drop("judgement", query_id, reason)
        writer.judge("abstention" if is_absent else "test", query_id, *relevant)
    for name, texts in turns_of.items():
        chat = [Turn(f"{name}:{i}", role, text) for i, (role, text) in enumerate(texts)]
        write_conversation(writer, [ChatSession(name, "", chat)])
    writer.notes.append("A question is about the sessions in its metadata; the corpus contains those of all questions.")


def write_conversation(
    writer: DatasetWriter, sessions: Iterable[ChatSession], *, conversation: str | None = None
) -> None:
    """Write the turns of a conversation and the edges between them.

    The turns of a speaker are joined across sessions. Consecutive turns of one speaker have only the edge ``next``.

    Args:
        writer: Writer of the data set folder.
        sessions: Sessions in order.
        conversation: Id of the conversation for the metadata of the turns, or None to write none.
    """
    last_of: dict[str, Turn] = {}
    for session in sessions:
        previous: Turn | None = None
        for number, turn in enumerate(session.turns):
            title, text = (session.date, f"{turn.speaker}: {turn.text}") if turn.text else ("", "")
            position = {"doc_id": session.name, "chunk_id": number, "speaker": turn.speaker}
            writer.document(turn.doc_id, title, text, **position, conversation=conversation, date=session.date or None)
            if previous is not None:
                writer.edge(previous.doc_id, turn.doc_id, "next")
            if (earlier := last_of.get(turn.speaker)) is not None and earlier is not previous:
                writer.edge(earlier.doc_id, turn.doc_id, "same_speaker")
            last_of[turn.speaker] = previous = turn


def _locomo_sessions(name: str, conversation: Mapping[str, Any]) -> Iterator[ChatSession]:
    """Yield the sessions of one conversation in the order of their numbers."""
    for number in sorted(int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key))):
        turns = []
        for turn in conversation[f"session_{number}"]:
            picture = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            turns.append(Turn(f"{name}:{turn['dia_id']}", turn["speaker"], turn["text"].strip() + picture))
        yield ChatSession(f"{name}:session_{number}", conversation.get(f"session_{number}_date_time", ""), turns)


def _evidence(
    writer: DatasetWriter, query_id: str, evidence: Sequence[str], conversation: str, turn_ids: set[str]
) -> list[str]:
    """Return the ids of the turns that a question's evidence names, and list evidence that names no turn as dropped."""
    if not evidence:
        writer.drop("judgement", query_id, "the question has no evidence")
    relevant: list[str] = []
    for text in evidence:  # a text may name several turns, and the number of a turn may begin with 0
        named = [f"{conversation}:D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(text)]
        if not named or not turn_ids.issuperset(named):
            writer.drop("judgement", query_id, "evidence that names no turn", text)
        relevant += [turn for turn in named if turn in turn_ids]
    return relevant


def _session_name(session_id: str, texts: list[tuple[str, str]], turns_of: dict[str, list[tuple[str, str]]]) -> str:
    """Add a session and return its name. Histories may contain different parts of a session, which get a number."""
    name, number = session_id, 1
    while turns_of.setdefault(name, texts) != texts:
        number += 1
        name = f"{session_id}~{number}"
    return name
