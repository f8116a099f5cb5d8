"""LongMemEval: questions about a user's past chats with an assistant; turns that hold the answer are relevant.

Source: Wu et al. 2025, LongMemEval; ``longmemeval_s.json``, ``..._m.json`` or ``..._oracle.json``. A question comes
with the sessions of its own history; their union is the corpus here, and ``sessions`` in a question's metadata are its
own. Dates belong to a question's history, not to a session, and stay with the question. Questions whose id ends with
``_abs`` ask for what never happened; the authors leave them out of retrieval, and their judgements are in the split
``abstention``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.conversations import Turn, turn_documents, turn_edges
from graphrerank_papers.builders.draft import Draft, Dropped, Edge, Judgement, query
from graphrerank_papers.builders.raw_files import RawFiles

NEEDED = ("question_id", "question", "haystack_session_ids", "haystack_sessions")


def build_longmemeval(files: RawFiles) -> Draft:
    """Read one of the files."""
    sessions: dict[str, list[tuple[str, str]]] = {}
    documents: list[Record] = []
    queries: list[Record] = []
    edges: list[Edge] = []
    qrels: dict[str, list[Judgement]] = {"test": [], "abstention": []}
    dropped: list[Dropped] = []
    for place, record in files.one("longmemeval*.json", "longmemeval*").records(*NEEDED):
        try:
            own, relevant = [], []
            for name, turns in zip(record["haystack_session_ids"], record["haystack_sessions"], strict=True):
                said = [(turn["role"], turn["content"].strip()) for turn in turns]
                if name not in sessions or sessions[name] != said:
                    name = _free_name(name, said, sessions)
                    if name not in sessions:
                        sessions[name] = said
                        listed = [Turn(f"{name}:{i}", role, text, {}) for i, (role, text) in enumerate(said)]
                        documents += turn_documents(name, "", listed)
                        edges += turn_edges([listed])
                own.append(name)
                relevant += [f"{name}:{i}" for i, turn in enumerate(turns) if turn.get("has_answer")]
            queries.append(_question(record, own))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"{place}: needed a question of LongMemEval ({error!r})") from error
        query_id = str(record["question_id"])
        split = "abstention" if query_id.endswith("_abs") else "test"
        if not relevant:
            unasked = "the question has no answer in its history"
            reason = unasked if split == "abstention" else "no turn is marked as the answer's"
            dropped.append(Dropped("judgement", query_id, reason))
        qrels[split] += [Judgement(query_id, doc_id) for doc_id in dict.fromkeys(relevant)]
    notes = ["A question is about the sessions that its metadata names; the corpus holds those of all questions."]
    return Draft(documents, queries, qrels, edges, dropped=dropped, notes=notes)


def _free_name(name: str, said: Sequence[tuple[str, str]], sessions: Mapping[str, Any]) -> str:
    """Return the name under which a session stands or can stand: histories may cut one session differently."""
    number, free = 1, name
    while free in sessions and sessions[free] != said:
        number += 1
        free = f"{name}~{number}"
    return free


def _question(record: Record, own: list[str]) -> Record:
    return query(
        str(record["question_id"]),
        record["question"],
        answer=record.get("answer"),
        type=record.get("question_type"),
        date=record.get("question_date"),
        sessions=own,
        session_dates=record.get("haystack_dates"),
    )
