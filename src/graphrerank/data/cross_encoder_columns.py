"""Data sets whose first candidates a cross-encoder reads."""

from dataclasses import replace

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.data.candidates import PreparedDataset
from graphrerank.features.cross_encoder_columns import cross_encoder_columns
from graphrerank.graphs import PairEncoder
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES

QUERIES_AT_ONCE = 1024  # whose pairs' vectors are held together


def with_cross_encoder(
    prepared: PreparedDataset, pair_encoder: PairEncoder, queries: Tensor, *, top_k: int
) -> PreparedDataset:
    """Let a cross-encoder read the first candidates of some queries, and add its scores as features.

    Args:
        prepared: The data set with its candidates; its ``pair_encoder`` is not asked.
        pair_encoder: Reads the pairs; wrap it in a ``PairCache`` so that none is read twice.
        queries: ``[Q']`` int64 numbers of queries; of all others the new features are 0. Of no query nothing is read.
        top_k: How many candidates of a query are read, the first ones of its base ranking.

    Returns:
        The data set with ``CROSS_ENCODER_FEATURES`` behind its features (:func:`cross_encoder_columns`).

    Raises:
        ValueError: If ``top_k`` is not positive.
    """
    check_counts(top_k=top_k)
    ranking = prepared.ranking
    assert ranking.features is not None
    scores, read = torch.zeros(ranking.nodes.shape), torch.zeros(ranking.nodes.shape, dtype=torch.bool)
    for block in torch.split(torch.unique(queries), QUERIES_AT_ONCE) if len(queries) else ():
        read[block, :top_k] = ranking.nodes[block, :top_k] >= 0
        logits = pair_encoder.head(pair_encoder.encode(*prepared.pairs(block, top_k=top_k))).cpu()
        scores[block] = scores[block].masked_scatter(read[block], logits)
    features = torch.cat([ranking.features, cross_encoder_columns(scores, read)], dim=-1)
    names = (*prepared.feature_names, *CROSS_ENCODER_FEATURES)
    return replace(prepared, ranking=replace(ranking, features=features), feature_names=names)
