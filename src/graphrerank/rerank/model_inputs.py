"""A query's candidates as tensors of a model: its scores and its edges, in all forms that callers give them."""

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.core.retriever import BASE_SCORE, CROSS_ENCODER_FEATURES, OPTIONAL_FEATURES, TEXT_FEATURES
from graphrerank.corpus import EntityIncidence, conceptual_edges
from graphrerank.corpus.edge_lists import adjacency_edges
from graphrerank.corpus.edge_types import ADJACENCY, ENTITY
from graphrerank.corpus.entity_incidence import normalized_names
from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.features.text_match import TEXT_MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.features.word_table import words_of
from graphrerank.rerank.arrays import to_array, to_floats, to_integers
from graphrerank.rerank.rerank_input import Numbers, RerankInput
from graphrerank.utils.checks import UserError

BM25_SCORE, DENSE_SCORE = TEXT_FEATURES
KNOWN_FEATURES = (*OPTIONAL_FEATURES, *TEXT_MATCH_FEATURES)  # filled here, in addition to the base score
Edges = tuple[Tensor, Tensor, Tensor]  # [M, 2] int64 pairs, [M] weights, [M] numbers of types


def unit_vectors(given: RerankInput, dim: int | None) -> tuple[Tensor, Tensor] | None:
    """Return unit vectors ``[1, d]`` of the query and ``[n, d]`` of the passages; None for none."""
    if given.query_vector is None or given.vectors is None:
        return None
    query = to_floats("query_vector", given.query_vector, (dim,)).unsqueeze(0).double()
    nodes = to_floats("vectors", given.vectors, (given.num_passages, query.shape[1])).double()
    return F.normalize(query, dim=1).float(), F.normalize(nodes, dim=1).float()  # large norms are beyond float32


def input_features(
    given: RerankInput,
    names: Sequence[str],
    vectors: tuple[Tensor, Tensor] | None,
    edges: Tensor,
    weights: Mapping[str, float],
) -> Tensor:
    r"""Fill the columns of some names: ``[n, F]`` float32.

    - ``base_score``: the given ``scores``; else :math:`w_b\,\mathrm{BM25} / \max \mathrm{BM25} + w_d \cos`, as
      :class:`~graphrerank.operators.hybrid.HybridRetriever` ranks a corpus, and BM25 alone where there are no vectors.
    - ``bm25_score``: BM25 among the passages, divided by its maximum; ``dense_score``: the cosine.
    - ``query_coverage`` and the like: as :class:`~graphrerank.features.text_match.TextMatch` measures them.
    - ``cross_encoder_score`` and the like: of the given ``cross_encoder_scores``.
    - The others belong to an expansion: 0, as are all for which texts, vectors or scores are missing.

    ``given.features`` takes the place of all but the first. ``names`` begin with ``base_score``; ``edges [M, 2]`` are
    pairs (target, source); ``weights`` are ``bm25_weight``, :math:`w_b`, and ``dense_weight``, :math:`w_d`.
    """
    features = given.features or {}
    if unknown := [name for name in features if name not in names[1:]]:
        hint = "; give it as `scores`" if unknown[0] == BASE_SCORE else ""
        raise UserError(f"`features` must be among those the model reads, {list(names[1:])}, got {unknown[0]!r}{hint}")
    count = given.num_passages
    columns = dict.fromkeys(KNOWN_FEATURES, torch.zeros(count))
    read = {name for name in names if name not in features} | ({BM25_SCORE} if given.scores is None else set())
    if given.cross_encoder_scores is not None:
        if missing := [name for name in CROSS_ENCODER_FEATURES if name not in names]:
            raise UserError(
                "`cross_encoder_scores` need a model that was trained with them "
                f"(features=scores_match_typed_cross_encoder), got one without {missing}"
            )
        of_pairs = cross_encoder_columns(*_cross_encoder_scores(given.cross_encoder_scores, count))
        columns |= zip(CROSS_ENCODER_FEATURES, of_pairs.T, strict=True)
    columns |= text_features(given, read, edges)
    if vectors is not None:
        columns[DENSE_SCORE] = vectors[1] @ vectors[0][0]
    if given.scores is not None:
        columns[BASE_SCORE] = to_floats("scores", given.scores, (count,))
    elif vectors is None:
        columns[BASE_SCORE] = columns[BM25_SCORE]
    else:
        bm25, dense = weights["bm25_weight"] * columns[BM25_SCORE], weights["dense_weight"] * columns[DENSE_SCORE]
        columns[BASE_SCORE] = bm25 + dense
    columns |= {name: to_floats(f"features[{name!r}]", numbers, (count,)) for name, numbers in features.items()}
    return torch.stack([columns[name] for name in names], dim=1)


def _cross_encoder_scores(given: Numbers | Sequence[float | None], count: int) -> tuple[Tensor, Tensor]:
    """Return scores ``[n]``, 0 where there is none, and where there is one, ``[n]`` bool."""
    numbers = given if hasattr(given, "dtype") else [math.nan if score is None else score for score in given]
    array = to_array("cross_encoder_scores", numbers, (count,), "iuf", "numbers")
    unread = np.isnan(array)
    return to_floats("cross_encoder_scores", np.where(unread, 0.0, array), (count,)), torch.from_numpy(~unread)


def text_features(given: RerankInput, names: Collection[str], edges: Tensor) -> dict[str, Tensor]:
    """Compute the scores of ``names`` that follow from texts: BM25, divided by its maximum, ``TEXT_MATCH_FEATURES``."""
    columns: dict[str, Tensor] = {}
    is_matched = not set(TEXT_MATCH_FEATURES).isdisjoint(names)
    if given.passages is None or not (is_matched or BM25_SCORE in names):
        return columns
    words, table = words_of(given.passages, language=given.language_of_passages)
    query = table.read([given.query])
    if BM25_SCORE in names:
        scores = torch.from_numpy(bm25_scores(words, query.tokens))
        columns[BM25_SCORE] = scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)
    if is_matched:
        match = TextMatch(words, table=table)
        nodes, ptr = torch.arange(given.num_passages), torch.tensor([0, given.num_passages])
        with_words = not set(WORD_FEATURES).isdisjoint(names)
        found = match.score(query, nodes, edges.T.flip(0), ptr, with_words=with_words)
        columns |= zip(TEXT_MATCH_FEATURES[: found.shape[1]], found.T, strict=True)
    return columns


def input_edges(given: RerankInput) -> Edges:
    """List directed edges, parallel ones too: ``[M, 2]`` int64 pairs (target, source), weights and types ``[M]``."""
    parts = [(given.edge_list.pairs, given.edge_list.weights, given.edge_list.types)]
    if given.doc_ids is not None and given.chunk_ids is not None:
        known = [place for place, ids in enumerate(zip(given.doc_ids, given.chunk_ids, strict=True)) if None not in ids]
        chunk_ids = to_integers("chunk_ids", [given.chunk_ids[place] for place in known], (len(known),)).tolist()
        edges = torch.tensor(known)[adjacency_edges([str(given.doc_ids[place]) for place in known], chunk_ids)]
        parts.append((edges, torch.ones(len(edges)), torch.full((len(edges),), ADJACENCY)))
    parts += [(edges.flip(1), weight, edge_type) for edges, weight, edge_type in parts]
    if given.entities is not None:
        incidence = EntityIncidence.from_names(normalized_names(given.entities))
        edge_index, weight, _ = conceptual_edges(incidence, torch.arange(given.num_passages).unsqueeze(0))
        parts.append((edge_index.flip(0).T, weight, torch.full_like(edge_index[0], ENTITY)))
    pairs, weights, types = map(torch.cat, zip(*parts, strict=True))
    return pairs, weights, types
