"""Conversations as graphs: LoCoMo and LongMemEval.

A turn is a document, joined to the turn before it (``next``) and to its speaker's turn before (``same_speaker``).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFiles

ADVERSARIAL = 5  # LoCoMo's category of questions without an answer
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D(\d+):(\d+)")


class Turn(NamedTuple):
    """One speaker's turn."""

    doc_id: str
    speaker: str
    text: str


@builder("locomo", "LoCoMo", "CC BY-NC 4.0", "https://github.com/snap-research/locomo")
def locomo(files: RawFiles, writer: DatasetWriter) -> None:
    """Read questions about very long conversations of two people, with the turns that the authors name as evidence.

    Source: Maharana et al. 2024, LoCoMo. The ten conversations are one corpus: ``metadata.conversation`` of a turn or a
    question names its own. Questions of category 5 have no answer in the conversation; their judgements are in the
    split ``adversarial``, all others in ``test``.
    """
    conversations = []
    for record in files.one("locomo*.json").records():
        name = str(record["sample_id"])
        sessions = list(_locomo_sessions(name, record["conversation"]))
        conversations.append((name, sessions))
        known = {turn.doc_id for _, _, turns in sessions for turn in turns}
        for number, question in enumerate(record["qa"]):
            query_id, category = f"{name}:q{number}", question.get("category")
            answer = question.get("answer", question.get("adversarial_answer"))
            writer.query(query_id, question["question"], answer=answer, category=category, conversation=name)
            evidence = question.get("evidence") or []
            if not evidence:
                writer.drop("judgement", query_id, "the question has no evidence")
            relevant: list[str] = []
            for text in evidence:  # it may name several turns, or one with a leading 0
                named = [f"{name}:D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(text)]
                if not named or not known.issuperset(named):
                    writer.drop("judgement", query_id, "evidence that names no turn", text)
                relevant += [turn for turn in named if turn in known]
            writer.judge("adversarial" if category == ADVERSARIAL else "test", query_id, *relevant)
    for name, sessions in conversations:
        write_conversation(writer, sessions, conversation=name)
    writer.notes.append("A question is about its own conversation; the corpus holds all of them.")


@builder("longmemeval", "LongMemEval", "MIT", "https://github.com/xiaowu0162/LongMemEval")
def longmemeval(files: RawFiles, writer: DatasetWriter) -> None:
    """Read questions about a user's past chats with an assistant, with the turns that hold the answer.

    Source: Wu et al. 2025, LongMemEval. A question comes with the sessions of its history: the union of all is
    the corpus, and ``metadata.sessions`` names those of a question. Dates belong to a question's history, not to a
    session, and stay with the question. Questions whose id ends with ``_abs`` are about what never happened; the
    authors leave them out of retrieval, and their judgements are in the split ``abstention``.
    """
    known: dict[str, list[tuple[str, str]]] = {}  # speakers and texts of a session's turns
    for record in files.one("longmemeval*.json", "longmemeval*").records():
        query_id = str(record["question_id"])
        sessions, relevant = [], []
        for plain_name, turns in zip(record["haystack_session_ids"], record["haystack_sessions"], strict=True):
            name, number = plain_name, 1
            texts = [(turn["role"], turn["content"].strip()) for turn in turns]
            while known.setdefault(name, texts) != texts:  # histories may cut one session differently
                number += 1
                name = f"{plain_name}~{number}"
            sessions.append(name)
            relevant += [f"{name}:{i}" for i, turn in enumerate(turns) if turn.get("has_answer")]
        answer, kind, date = (record.get(key) for key in ("answer", "question_type", "question_date"))
        when = {"date": date, "sessions": sessions, "session_dates": record.get("haystack_dates")}
        writer.query(query_id, record["question"], answer=answer, type=kind, **when)
        is_absent = query_id.endswith("_abs")
        if not relevant:
            reason = "the question has no answer in its history" if is_absent else "no turn is marked as the answer's"
            writer.drop("judgement", query_id, reason)
        writer.judge("abstention" if is_absent else "test", query_id, *relevant)
    for name, texts in known.items():
        turns = [Turn(f"{name}:{i}", role, text) for i, (role, text) in enumerate(texts)]
        write_conversation(writer, [(name, "", turns)])
    writer.notes.append("A question is about the sessions that its metadata names; the corpus holds all of them.")


def write_conversation(
    writer: DatasetWriter, sessions: Iterable[tuple[str, str, Sequence[Turn]]], *, conversation: str | None = None
) -> None:
    """Write the turns of sessions, each a name, a date and turns; a speaker's turns are joined across sessions.

    Two turns that are neighbours of one speaker have the edge of neighbours alone.
    """
    last: dict[str, Turn] = {}
    for name, date, turns in sessions:
        before: Turn | None = None
        for number, turn in enumerate(turns):
            title, text = (date, f"{turn.speaker}: {turn.text}") if turn.text else ("", "")
            place = {"doc_id": name, "chunk_id": number, "speaker": turn.speaker}
            writer.document(turn.doc_id, title, text, **place, conversation=conversation, date=date or None)
            if before is not None:
                writer.edge(before.doc_id, turn.doc_id, "next")
            if (earlier := last.get(turn.speaker)) is not None and earlier is not before:
                writer.edge(earlier.doc_id, turn.doc_id, "same_speaker")
            last[turn.speaker] = before = turn


def _locomo_sessions(name: str, conversation: Mapping[str, Any]) -> Iterator[tuple[str, str, list[Turn]]]:
    for number in sorted(int(found[1]) for key in conversation if (found := _SESSION.fullmatch(key))):
        turns = []
        for turn in conversation[f"session_{number}"]:
            picture = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            turns.append(Turn(f"{name}:{turn['dia_id']}", turn["speaker"], turn["text"].strip() + picture))
        yield f"{name}:session_{number}", conversation.get(f"session_{number}_date_time", ""), turns
