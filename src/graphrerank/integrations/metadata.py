"""Helpers of all adapters: build the reranker's input from the metadata of retrieved passages, and rank it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput

InputEdge = tuple[int, int] | tuple[int, int, str]  # (i, j) or (i, j, edge type)
FindEdges = Callable[[Sequence[str]], Sequence[InputEdge]]  # maps a list of texts to edges between its positions
SCORE_KEY, ENTITIES_KEY, DOC_ID, CHUNK_ID = "score", "entities", "doc_id", "chunk_id"  # keys of the metadata
DISTANCE_KEYS = ("distance", "_distance")  # keys of the metadata with a distance, where lower is better
MIN_ASCENDING = 3  # number of scores from which an ascending list is reported


def input_from_metadata(
    query: str,
    passages: Sequence[str | None],
    metadata: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[float | None] | None = None,
    distances: bool | None = None,
    edges: Sequence[InputEdge] = (),
    top_n: int | None = None,
) -> RerankInput:
    """Build the reranker's input for one query from passages and their metadata.

    The metadata may have ``score`` or ``distance``, ``entities`` (a name or a list of names) and ``doc_id`` with
    ``chunk_id``. Numbers may be strings. If two passages have the same ``doc_id`` and ``chunk_id``, these are ignored
    for the second one. Single bad items are repaired or left out as in
    :class:`~graphrerank.rerank.rerank_input.RerankInput`, so a passage without a score gets the lowest one.

    Args:
        query: Text of the query.
        passages: Texts of the passages. None means an empty text.
        metadata: Metadata of each passage.
        scores: Scores of the retriever, None for passages without one. If None, the scores of the metadata are used.
            If no passage has a score, the reranker computes the scores.
        distances: Whether the scores are distances, where lower is better. They are then negated. If None, they
            are not, and a warning reports scores that increase along the list, as distances do. The entries
            ``distance`` and ``_distance`` of the metadata always are distances.
        edges: Edges among the passages, as in :class:`~graphrerank.rerank.rerank_input.RerankInput`.
        top_n: Number of passages to return. If None, all passages.

    Returns:
        The input of the reranker.
    """
    chunks: dict[tuple[str, int], int] = {}
    for index, entry in enumerate(metadata):
        chunk = _number(entry.get(CHUNK_ID))
        if entry.get(DOC_ID) is not None and chunk is not None and chunk.is_integer():
            chunks.setdefault((str(entry[DOC_ID]), int(chunk)), index)
    chunk_of = {index: chunk for chunk, index in chunks.items()}
    names = [_names(entry.get(ENTITIES_KEY)) for entry in metadata]
    return RerankInput(
        query,
        ["" if passage is None else passage for passage in passages],
        scores=_retriever_scores(scores, metadata, are_distances=distances),
        edges=edges,
        entities=names if any(names) else None,
        doc_ids=[chunk_of.get(index, (None, None))[0] for index in range(len(passages))] if chunks else None,
        chunk_ids=[chunk_of.get(index, (None, None))[1] for index in range(len(passages))] if chunks else None,
        top_n=top_n,
    )


def _retriever_scores(
    scores: Sequence[float | None] | None, metadata: Sequence[Mapping[str, Any]], *, are_distances: bool | None
) -> Sequence[float | None] | None:
    """Return the scores of the passages, where higher is better, or None if no passage has one."""
    if scores is None:
        scores = [_number(entry.get(SCORE_KEY)) for entry in metadata]
    if all(score is None for score in scores):
        scores, are_distances = [_distance(entry) for entry in metadata], True
    if all(score is None for score in scores):
        return None
    if are_distances:
        return [None if score is None else -score for score in scores]
    if are_distances is None and _is_ascending(scores):
        warnings.warn(
            f"the scores of the retriever increase from the first passage ({scores[0]:g}) to the last "
            f"({scores[-1]:g}), as distances do. Set `distances=True` if lower is better, otherwise `distances=False`",
            stacklevel=5,
        )
    return scores


def _is_ascending(scores: Sequence[float | None]) -> bool:
    """Return whether scores increase along a list, which retrievers return with the best passage first."""
    if len(scores) < MIN_ASCENDING or any(score is None for score in scores):
        return False
    return scores[0] < scores[-1] and all(first <= second for first, second in pairwise(scores))  # type: ignore[operator]


def _distance(entry: Mapping[str, Any]) -> float | None:
    """Return the distance in the metadata of a passage, or None."""
    distances = [number for key in DISTANCE_KEYS if (number := _number(entry.get(key))) is not None]
    return distances[0] if distances else None


def _names(entities: Any) -> Any:
    """Return the list of names in the metadata of a passage, which may also be a single name or missing."""
    if entities is None or entities != entities:  # data frames have NaN for missing values
        return []
    return [entities] if isinstance(entities, str | int) else entities


def _number(value: Any) -> float | None:
    """Return a number or a numeric string as a float, or None for anything else."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def ranked(
    reranker: GraphReranker,
    query: str,
    passages: Sequence[str | None],
    metadata: Sequence[Mapping[str, Any]] | None = None,
    *,
    scores: Sequence[float | None] | None = None,
    distances: bool | None = None,
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
        distances: Whether the scores are distances, as in :func:`input_from_metadata`.
        edges: Edges among the passages.
        top_n: Number of passages to return. If None, all passages.

    Returns:
        The index of each passage and its relevance, which is a probability if the model is calibrated, otherwise a
        score.
    """
    if not passages:
        return []
    metadata = [{}] * len(passages) if metadata is None else metadata
    rerank_input = input_from_metadata(
        query, passages, metadata, scores=scores, distances=distances, edges=edges, top_n=top_n
    )
    ranking = reranker.rerank_batch([rerank_input])[0]
    return list(zip(ranking.ids, ranking.relevance.tolist(), strict=True))
