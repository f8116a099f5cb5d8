"""What adapters share: a reranker's input from the metadata of a retriever's passages, and its ranking."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput

InputEdge = tuple[int, int] | tuple[int, int, str]  # with its type
FindEdges = Callable[[Sequence[str]], Sequence[InputEdge]]  # of texts or ids, pairs of positions
SCORE_KEY, ENTITIES_KEY, DOC_ID, CHUNK_ID = "score", "entities", "doc_id", "chunk_id"  # the metadata's keys


def input_from_metadata(
    query: str,
    passages: Sequence[str | None],
    metadata: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[float | None] | None = None,
    edges: Sequence[InputEdge] = (),
    top_n: int | None = None,
) -> RerankInput:
    """Build the candidates of a query.

    A passage of None is an empty one. Metadata: ``score`` is used if all passages have one, ``entities``, names or one
    name, and ``doc_id`` with ``chunk_id`` of those that have them; the first passage is a chunk that is there twice.
    Numbers may be texts. ``scores`` replace those of the metadata unless one is None; ``edges`` as of ``RerankInput``.
    """
    given = [_number(entry.get(SCORE_KEY)) for entry in metadata] if scores is None else scores
    found = [score for score in given if score is not None]
    chunks: dict[tuple[str, int], int] = {}
    for place, entry in enumerate(metadata):
        chunk = _number(entry.get(CHUNK_ID))
        if entry.get(DOC_ID) is not None and chunk is not None and chunk.is_integer():
            chunks.setdefault((str(entry[DOC_ID]), int(chunk)), place)
    chunk_of = {place: chunk for chunk, place in chunks.items()}
    names = [entry.get(ENTITIES_KEY) or [] for entry in metadata]
    return RerankInput(
        query,
        ["" if passage is None else passage for passage in passages],
        scores=found if len(found) == len(passages) else None,
        edges=edges,
        entities=[[name] if isinstance(name, str) else name for name in names] if any(names) else None,
        doc_ids=[chunk_of.get(place, (None, None))[0] for place in range(len(passages))] if chunks else None,
        chunk_ids=[chunk_of.get(place, (None, None))[1] for place in range(len(passages))] if chunks else None,
        top_n=top_n,
    )


def _number(value: Any) -> float | None:
    """Return a finite number of metadata, which may be a text; None for anything else."""
    try:
        return number if math.isfinite(number := float(value)) else None
    except (TypeError, ValueError, OverflowError):
        return None


def ranked(
    reranker: GraphReranker,
    query: str,
    passages: Sequence[str | None],
    metadata: Sequence[Mapping[str, Any]] | None = None,
    *,
    scores: Sequence[float | None] | None = None,
    edges: Sequence[InputEdge] = (),
    top_n: int | None = None,
) -> list[tuple[int, float]]:
    """Rank the passages of a query; arguments as of :func:`input_from_metadata`.

    Returns:
        Best first, the index of each passage and its relevance: a probability if the model is calibrated, else a score.
    """
    if not passages:
        return []
    metadata = [{}] * len(passages) if metadata is None else metadata
    given = input_from_metadata(query, passages, metadata, scores=scores, edges=edges, top_n=top_n)
    ranking = reranker.rerank_batch([given])[0]
    return list(zip(ranking.ids, ranking.relevance.tolist(), strict=True))
