"""Conversations as graphs: a turn is a document, joined to the turn before it and to its speaker's turn before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Edge, document

NEXT, SPEAKER = "next", "same_speaker"  # types of edges: neighbouring turns; one speaker's turns after another


@dataclass(frozen=True)
class Turn:
    """What one speaker says at a time."""

    doc_id: str
    speaker: str
    text: str
    metadata: dict[str, Any]


def turn_documents(session: str, title: str, turns: Sequence[Turn]) -> Iterator[Record]:
    """Return the turns of one session as documents with ``doc_id``, ``chunk_id`` and ``speaker`` in their metadata."""
    for number, turn in enumerate(turns):
        text = f"{turn.speaker}: {turn.text}" if turn.text else ""
        place = {"doc_id": session, "chunk_id": number, "speaker": turn.speaker}
        yield document(turn.doc_id, title, text, **place, **turn.metadata) | ({} if text else {"title": ""})


def turn_edges(sessions: Sequence[Sequence[Turn]]) -> Iterator[Edge]:
    """Join the turns of one conversation's sessions; a speaker's turns are joined across sessions too.

    A pair that is both has the edge of neighbours alone.
    """
    last: dict[str, Turn] = {}
    for turns in sessions:
        for before, turn in zip([None, *turns], turns, strict=False):
            if before is not None:
                yield Edge(before.doc_id, turn.doc_id, NEXT)
            said = last.get(turn.speaker)
            if said is not None and said is not before:
                yield Edge(said.doc_id, turn.doc_id, SPEAKER)
            last[turn.speaker] = turn
