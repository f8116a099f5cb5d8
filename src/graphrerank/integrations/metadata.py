"""Helpers of all adapters: build the reranker's input from the metadata of retrieved passages, and rank it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput

InputEdge = tuple[int, int] | tuple[int, int, str]  # (i, j) or (i, j, edge type)
FindEdges = Callable[[Sequence[str]], Sequence[InputEdge]]  # maps a list of texts to edges between its positions
SCORE_KEY, ENTITIES_KEY, DOC_ID, CHUNK_ID = "score", "entities", "doc_id", "chunk_id"  # keys of the metadata


def input_from_metadata(
    query: str,
    passages: Sequence[str | None],
    metadata: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[float | None] | None = None,
    edges: Sequence[InputEdge] = (),
    top_n: int | None = None,
) -> RerankInput:
    """Build the reranker's input for one query from passages and their metadata.

    The metadata may have ``score`` (used only if all passages have one), ``entities`` (a name or a list of names) and
    ``doc_id`` with ``chunk_id``. Numbers may be strings. If two passages have the same ``doc_id`` and ``chunk_id``,
    these are ignored for the second one.

    Args:
        query: Text of the query.
        passages: Texts of the passages. None means an empty text.
        metadata: Metadata of each passage.
        scores: Scores of the retriever. If None, the scores of the metadata are used. Ignored if an entry is None.
        edges: Edges among the passages, as in :class:`~graphrerank.rerank.rerank_input.RerankInput`.
        top_n: Number of passages to return. If None, all passages.

    Returns:
        The input of the reranker.
    """
    all_scores = [_number(entry.get(SCORE_KEY)) for entry in metadata] if scores is None else scores
    valid_scores = [score for score in all_scores if score is not None]
    chunks: dict[tuple[str, int], int] = {}
    for index, entry in enumerate(metadata):
        chunk = _number(entry.get(CHUNK_ID))
        if entry.get(DOC_ID) is not None and chunk is not None and chunk.is_integer():
            chunks.setdefault((str(entry[DOC_ID]), int(chunk)), index)
    chunk_of = {index: chunk for chunk, index in chunks.items()}
    names = [entry.get(ENTITIES_KEY) or [] for entry in metadata]
    return RerankInput(
        query,
        ["" if passage is None else passage for passage in passages],
        scores=valid_scores if len(valid_scores) == len(passages) else None,
        edges=edges,
        entities=[[name] if isinstance(name, str) else name for name in names] if any(names) else None,
        doc_ids=[chunk_of.get(index, (None, None))[0] for index in range(len(passages))] if chunks else None,
        chunk_ids=[chunk_of.get(index, (None, None))[1] for index in range(len(passages))] if chunks else None,
        top_n=top_n,
    )


def _number(value: Any) -> float | None:
    """Return a number or a numeric string as a finite float, or None for anything else."""
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
    """Rank the passages of a query, best first.

    Args:
        reranker: Reranker whose model needs no vectors.
        query: Text of the query.
        passages: Texts of the passages. None means an empty text.
        metadata: Metadata of each passage, as in :func:`input_from_metadata`. If None, there is no metadata.
        scores: Scores of the retriever, as in :func:`input_from_metadata`.
        edges: Edges among the passages.
        top_n: Number of passages to return. If None, all passages.

    Returns:
        The index of each passage and its relevance, which is a probability if the model is calibrated, otherwise a
        score.
    """
    if not passages:
        return []
    metadata = [{}] * len(passages) if metadata is None else metadata
    rerank_input = input_from_metadata(query, passages, metadata, scores=scores, edges=edges, top_n=top_n)
    ranking = reranker.rerank_batch([rerank_input])[0]
    return list(zip(ranking.ids, ranking.relevance.tolist(), strict=True))
