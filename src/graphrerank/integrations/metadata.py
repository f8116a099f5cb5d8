"""What adapters share: a reranker's input from the metadata of a retriever's passages, and its ranking."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput

Edge = tuple[int, int] | tuple[int, int, str]  # with its type
FindEdges = Callable[[Sequence[str]], Sequence[Edge]]  # of texts or ids, pairs of positions
SCORE, ENTITIES, DOC_ID, CHUNK_ID = "score", "entities", "doc_id", "chunk_id"  # the metadata's keys


def input_from_metadata(
    query: str,
    passages: Sequence[str],
    metadata: Sequence[Mapping[str, Any]],
    *,
    scores: Sequence[float] | None = None,
    edges: Sequence[Edge] = (),
    top_n: int | None = None,
) -> RerankInput:
    """Build the candidates of a query.

    Metadata: ``score``, and ``doc_id`` with ``chunk_id``, are used if all passages have them; ``entities`` if any has.
    ``scores`` replace those of the metadata; ``edges`` are pairs of passages, perhaps with a type, and may repeat.
    """
    is_chunked = all(DOC_ID in entry and CHUNK_ID in entry for entry in metadata)
    if scores is None and all(entry.get(SCORE) is not None for entry in metadata):
        scores = [entry[SCORE] for entry in metadata]
    distinct = sorted({(min(i, j), max(i, j), *(named or ("other",))) for i, j, *named in edges})
    return RerankInput(
        query,
        passages,
        scores=scores,
        edges=[(i, j) for i, j, _ in distinct],
        edge_types=[edge_type for *_, edge_type in distinct],
        entities=[entry.get(ENTITIES) or [] for entry in metadata] if any(e.get(ENTITIES) for e in metadata) else None,
        doc_ids=[str(entry[DOC_ID]) for entry in metadata] if is_chunked else None,
        chunk_ids=[entry[CHUNK_ID] for entry in metadata] if is_chunked else None,
        top_n=top_n,
    )


def ranked(
    reranker: GraphReranker,
    query: str,
    passages: Sequence[str],
    metadata: Sequence[Mapping[str, Any]] | None = None,
    *,
    scores: Sequence[float] | None = None,
    edges: Sequence[Edge] = (),
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
