"""Convert a :class:`RerankInput` to a :class:`CandidateList`, the form from which candidate graphs are built."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.core.retriever import BASE_SCORE, CROSS_ENCODER_FEATURES, OPTIONAL_FEATURES, TEXT_FEATURES
from graphrerank.corpus import EntityIncidence, TypedEdges, conceptual_edges
from graphrerank.corpus.edge_lists import adjacency_edges
from graphrerank.corpus.edge_types import ADJACENCY, ENTITY
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.features.candidate_graph_builder import CandidateList, ListVectors
from graphrerank.features.candidate_texts import CandidateTexts
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.rerank.arrays import is_missing, nan_for_missing, plain_integer, to_array, to_floats, to_integers
from graphrerank.rerank.rerank_input import Numbers, RerankInput
from graphrerank.utils.checks import UserError

BM25_SCORE, DENSE_SCORE = TEXT_FEATURES
KNOWN_FEATURES = (*OPTIONAL_FEATURES, *TEXT_MATCH_FEATURES)  # features that this module computes besides the base score


def candidate_list(
    rerank_input: RerankInput, names: Sequence[str], dim: int | None, hybrid_weights: Mapping[str, float]
) -> CandidateList:
    """Check one query and its candidates, and convert them for :class:`CandidateGraphBuilder`.

    Args:
        rerank_input: Query and its ``n`` candidates.
        names: Names of the model's score features, ``base_score`` first.
        dim: Vector dimension that the model expects. If None, any dimension is accepted.
        hybrid_weights: ``bm25_weight`` and ``dense_weight`` of the base score for candidates without scores.

    Returns:
        Candidates in the order of the passages, with the scores and edges of the input.

    Raises:
        UserError: If an argument does not match the candidates or the model.
    """
    vectors, texts = unit_vectors(rerank_input, dim), None
    if rerank_input.passages is not None:
        texts = CandidateTexts(rerank_input.query, rerank_input.passages, rerank_input.language)
    edges = input_edges(rerank_input)
    return CandidateList(given_scores(rerank_input, names, texts, vectors, hybrid_weights), edges, texts, vectors)


def unit_vectors(rerank_input: RerankInput, dim: int | None) -> ListVectors | None:
    """Return the query's and the passages' vectors, scaled to unit length.

    Args:
        rerank_input: Query and its ``n`` candidates.
        dim: Expected dimension of the vectors. If None, any dimension is accepted.

    Returns:
        Unit vectors, or None if the input has no vectors.

    Raises:
        UserError: If the vectors have another shape, or contain values that are not finite numbers.
    """
    if rerank_input.query_vector is None or rerank_input.vectors is None:
        return None
    query = to_floats("query_vector", rerank_input.query_vector, (dim,)).unsqueeze(0).double()
    nodes = to_floats("vectors", rerank_input.vectors, (rerank_input.num_passages, query.shape[1])).double()
    return ListVectors(F.normalize(query, dim=1).float(), F.normalize(nodes, dim=1).float())  # float32 norms overflow


def given_scores(
    rerank_input: RerankInput,
    names: Sequence[str],
    texts: CandidateTexts | None,
    vectors: ListVectors | None,
    hybrid_weights: Mapping[str, float],
) -> dict[str, Tensor]:
    r"""Return the score features of the candidates that the input contains or that can be computed from it.

    - ``base_score`` is ``scores`` if the input has them. Otherwise it is
      :math:`w_b\,\mathrm{BM25} / \max \mathrm{BM25} + w_d \cos`, the score by which
      :class:`~graphrerank.operators.hybrid.HybridRetriever` ranks a corpus, or BM25 alone if there are no vectors.
    - ``bm25_score`` is BM25 among the passages, divided by its maximum. ``dense_score`` is the cosine similarity.
    - ``cross_encoder_score`` and the related features are computed from ``cross_encoder_scores``.

    ``rerank_input.features`` overrides every feature except ``base_score``. :class:`CandidateGraphBuilder` adds the
    word-match features. It sets the features of an expansion to 0, and also those for which texts, vectors or scores
    are missing.

    Args:
        rerank_input: Query and its ``n`` candidates.
        names: Names of the model's score features, ``base_score`` first.
        texts: Texts of the query and the passages. None if the input has no passages.
        vectors: Unit vectors. None if the input has no vectors.
        hybrid_weights: ``bm25_weight``, :math:`w_b`, and ``dense_weight``, :math:`w_d`.

    Returns:
        Scores ``[n]`` (float32) by name, ``base_score`` first.

    Raises:
        UserError: If a feature is not one of ``names``, or if a score is not a finite number.
    """
    features = rerank_input.features or {}
    if unknown := [name for name in features if name not in names[1:]]:
        hint = ". Pass it as `scores`" if unknown[0] == BASE_SCORE else ""
        raise UserError(f"`features` must be features of the model, {list(names[1:])}, got {unknown[0]!r}{hint}")
    count = rerank_input.num_passages
    scores = {BASE_SCORE: torch.zeros(count)}
    if rerank_input.cross_encoder_scores is not None:
        scores |= _cross_encoder_scores(rerank_input.cross_encoder_scores, names, count)
    is_bm25_read = rerank_input.scores is None or (BM25_SCORE in names and BM25_SCORE not in features)
    if is_bm25_read and texts is not None:
        scores[BM25_SCORE] = texts.bm25()
    if vectors is not None:
        # row by row: a matrix product rounds equal rows differently, depending on their position
        scores[DENSE_SCORE] = (vectors.nodes * vectors.query[0]).sum(dim=1)
    if rerank_input.scores is not None:
        scores[BASE_SCORE] = to_floats("scores", rerank_input.scores, (count,))
    elif vectors is None:
        scores[BASE_SCORE] = scores[BM25_SCORE]
    else:
        bm25, dense = (
            hybrid_weights["bm25_weight"] * scores[BM25_SCORE],
            hybrid_weights["dense_weight"] * scores[DENSE_SCORE],
        )
        scores[BASE_SCORE] = bm25 + dense
    return scores | {name: to_floats(f"features[{name!r}]", numbers, (count,)) for name, numbers in features.items()}


def _cross_encoder_scores(
    cross_encoder_scores: Numbers | Sequence[float | None], names: Sequence[str], count: int
) -> dict[str, Tensor]:
    """Return the feature columns ``[n]`` of a cross-encoder's scores, which may be missing for some passages."""
    if missing := [name for name in CROSS_ENCODER_FEATURES if name not in names]:
        raise UserError(
            "`cross_encoder_scores` require a model that was trained with them "
            f"(features=scores_match_typed_cross_encoder), got a model without {missing}"
        )
    array = to_array("cross_encoder_scores", nan_for_missing(cross_encoder_scores), (count,), "iuf", "numbers")
    is_unread = ~np.isfinite(array)
    scores = to_floats("cross_encoder_scores", np.where(is_unread, 0.0, array), (count,))
    columns = cross_encoder_columns(scores, torch.from_numpy(~is_unread))
    return dict(zip(CROSS_ENCODER_FEATURES, columns.T, strict=True))


def input_edges(rerank_input: RerankInput) -> TypedEdges:
    """Return all edges among the candidates: given edges, neighbouring chunks and shared entities.

    Args:
        rerank_input: Query and its ``n`` candidates.

    Returns:
        Directed edges, each in both directions. Parallel edges are not merged.

    Raises:
        UserError: If an edge or a chunk number is invalid.
    """
    parts = [(rerank_input.edge_list.pairs, rerank_input.edge_list.weights, rerank_input.edge_list.types)]
    if rerank_input.doc_ids is not None and rerank_input.chunk_ids is not None:
        edges = consecutive_chunk_edges(rerank_input.doc_ids, rerank_input.chunk_ids)
        parts.append((edges, torch.ones(len(edges)), torch.full((len(edges),), ADJACENCY)))
    parts += [(edges.flip(1), weight, edge_type) for edges, weight, edge_type in parts]
    if rerank_input.entities is not None:
        incidence = EntityIncidence.from_names(normalized_names(rerank_input.entities))
        edge_index, weight, _ = conceptual_edges(incidence, torch.arange(rerank_input.num_passages).unsqueeze(0))
        parts.append((edge_index.flip(0).T, weight, torch.full_like(edge_index[0], ENTITY)))
    return TypedEdges(*map(torch.cat, zip(*parts, strict=True)))


def consecutive_chunk_edges(doc_ids: Iterable[Any], chunk_ids: Iterable[Any]) -> Tensor:
    """Return the edges between consecutive chunks of the same document.

    Args:
        doc_ids: Id of the document of each of the ``n`` passages.
        chunk_ids: Position of each of the ``n`` passages in its document. A passage with a missing position or a
            missing document has no edge.

    Returns:
        Passage indices ``[M, 2]`` int64, each pair once.

    Raises:
        UserError: If a position is not an integer, or occurs twice in a document.

    Example:
        >>> consecutive_chunk_edges(["x", "x", "y", "x"], [1, 0, 0, None]).tolist()
        [[1, 0]]
    """
    chunks = [
        (index, str(doc), plain_integer(chunk))
        for index, (doc, chunk) in enumerate(zip(doc_ids, chunk_ids, strict=True))
        if not (is_missing(doc) or is_missing(chunk))
    ]
    positions = to_integers("chunk_ids", [chunk for *_, chunk in chunks], (len(chunks),)).tolist()
    indices = torch.tensor([index for index, *_ in chunks], dtype=torch.int64)
    return indices[adjacency_edges([doc for _, doc, _ in chunks], positions)]
