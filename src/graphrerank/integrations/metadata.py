"""A reranker's input from the metadata of a retriever's passages."""

from collections.abc import Mapping, Sequence
from typing import Any

from graphrerank.inference import RerankInput

SCORE, ENTITIES, DOC_ID, CHUNK_ID = "score", "entities", "doc_id", "chunk_id"  # the metadata's keys


def input_from_metadata(
    query: str,
    passages: Sequence[str],
    metadata: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[float] | None = None,
    edges: Sequence[tuple[int, int]] = (),
    top_n: int | None = None,
) -> RerankInput:
    """Build the candidates of a query.

    ``score``, and ``doc_id`` with ``chunk_id``, are used if all passages have them; ``entities`` if any has.

    Args:
        query: The query.
        passages: ``n`` texts.
        metadata: ``n`` mappings.
        scores: ``n`` scores, which replace those of the metadata.
        edges: Pairs of joined passages; duplicates are dropped.
        top_n: Number of passages to return; None for all.

    Raises:
        ValueError: As :class:`RerankInput`.

    Example:
        >>> candidates = input_from_metadata("q", ["a", "b"], [{"entities": ["Rome"]}, {}], edges=[(1, 0), (0, 1)])
        >>> candidates.entities, candidates.edges, candidates.scores
        ([['Rome'], []], [(0, 1)], None)
    """
    is_chunked = all(DOC_ID in entry and CHUNK_ID in entry for entry in metadata)
    if scores is None and all(entry.get(SCORE) is not None for entry in metadata):
        scores = [entry[SCORE] for entry in metadata]
    return RerankInput(
        query,
        passages,
        scores=scores,
        edges=sorted({(min(pair), max(pair)) for pair in edges}),
        entities=[entry.get(ENTITIES) or [] for entry in metadata] if any(e.get(ENTITIES) for e in metadata) else None,
        doc_ids=[str(entry[DOC_ID]) for entry in metadata] if is_chunked else None,
        chunk_ids=[entry[CHUNK_ID] for entry in metadata] if is_chunked else None,
        top_n=top_n,
    )
