"""LoCoMo: questions about very long conversations of two people; turns that the authors name as evidence are relevant.

Source: Maharana et al. 2024, LoCoMo; ``locomo10.json``. The ten conversations make one corpus: ``conversation`` in the
metadata says to which a turn or a question belongs. Questions of category 5 have no answer in the conversation; their
judgements are in the split ``adversarial``, all others in ``test``.
"""

import re
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.conversations import Turn, turn_documents, turn_edges
from graphrerank_papers.builders.draft import Draft, Dropped, Edge, Judgement, query
from graphrerank_papers.builders.raw_files import RawFiles

ADVERSARIAL = 5  # category
_SESSION = re.compile(r"session_(\d+)")
_TURN = re.compile(r"D(\d+):(\d+)")


def build_locomo(files: RawFiles) -> Draft:
    """Read the conversations."""
    documents: list[Record] = []
    queries: list[Record] = []
    edges: list[Edge] = []
    qrels: dict[str, list[Judgement]] = {"test": [], "adversarial": []}
    dropped: list[Dropped] = []
    for place, record in files.one("locomo*.json").records("sample_id", "conversation", "qa"):
        name = str(record["sample_id"])
        try:
            sessions = _sessions(name, record["conversation"])
            known = {turn.doc_id for _, _, turns in sessions for turn in turns}
            for session, title, turns in sessions:
                documents += turn_documents(session, title, turns)
            edges += turn_edges([turns for _, _, turns in sessions])
            for number, asked in enumerate(record["qa"]):
                query_id, category = f"{name}:q{number}", asked.get("category")
                answer = asked.get("answer", asked.get("adversarial_answer"))
                queries.append(query(query_id, asked["question"], answer=answer, category=category, conversation=name))
                split = qrels["adversarial" if category == ADVERSARIAL else "test"]
                split += _evidence(query_id, name, asked.get("evidence") or [], known, dropped)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{place}: needed a conversation of LoCoMo ({error!r})") from error
    notes = ["A question is about its own conversation; the corpus holds all of them."]
    return Draft(documents, queries, qrels, edges, dropped=dropped, notes=notes)


def _sessions(name: str, conversation: dict[str, Any]) -> list[tuple[str, str, list[Turn]]]:
    numbers = sorted(int(found[1]) for key in conversation if (found := _SESSION.fullmatch(key)))
    sessions = []
    for number in numbers:
        date = conversation.get(f"session_{number}_date_time", "")
        turns = []
        for turn in conversation[f"session_{number}"]:
            picture = f" [shares {turn['blip_caption']}]" if turn.get("blip_caption") else ""
            metadata = {"conversation": name, "date": date or None}
            turns.append(Turn(f"{name}:{turn['dia_id']}", turn["speaker"], turn["text"].strip() + picture, metadata))
        sessions.append((f"{name}:session_{number}", date, turns))
    return sessions


def _evidence(
    query_id: str, name: str, evidence: list[str], known: set[str], dropped: list[Dropped]
) -> list[Judgement]:
    """Read names of turns, of which a text may hold several, or one with a 0 in front; what names none is dropped."""
    found: dict[str, None] = {}
    if not evidence:
        dropped.append(Dropped("judgement", query_id, "the question has no evidence"))
    for text in evidence:
        turns = [f"{name}:D{int(session)}:{int(turn)}" for session, turn in _TURN.findall(text)]
        missing = [turn for turn in turns if turn not in known]
        if not turns or missing:
            dropped.append(Dropped("judgement", query_id, "evidence that names no turn", text))
        found |= dict.fromkeys(turn for turn in turns if turn in known)
    return [Judgement(query_id, turn) for turn in found]
