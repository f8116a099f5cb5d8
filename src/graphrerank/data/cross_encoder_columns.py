"""A cross-encoder's scores of the first candidates, as scores of a candidate that a graph reranker reads."""

from dataclasses import replace

import torch
from torch import Tensor

from graphrerank.checks import check_counts
from graphrerank.data.candidates import PreparedDataset
from graphrerank.graphs import PairEncoder
from graphrerank.graphs.retriever import CROSS_ENCODER_FEATURES

QUERIES_AT_ONCE = 1024  # whose pairs' vectors are held together


def cross_encoder_columns(scores: Tensor, read: Tensor) -> Tensor:
    """Turn a cross-encoder's scores of some candidates into columns of any scale's scores alike.

    Of a candidate that was read: its score, min-max scaled among those read; 1 / its rank among them, ties by place;
    and 0. Of the others of the list: 0, 0 and 1. Where nothing was read, all is 0, as where a model's columns are
    hidden.

    Args:
        scores: ``[..., K]``, of any scale; not looked at where nothing was read.
        read: ``[..., K]`` bool, which candidates the cross-encoder has read.

    Returns:
        ``[..., K, 3]`` float32 in [0, 1], columns as in ``CROSS_ENCODER_FEATURES``.

    Example:
        >>> cross_encoder_columns(torch.tensor([-9.0, 3.0, -3.0, 0.0]), torch.tensor([True, True, True, False]))
        tensor([[0.0000, 0.3333, 0.0000],
                [1.0000, 1.0000, 0.0000],
                [0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 1.0000]])
    """
    scores = scores.float()
    low = scores.masked_fill(~read, torch.inf).amin(-1, keepdim=True)
    high = scores.masked_fill(~read, -torch.inf).amax(-1, keepdim=True)
    scaled = (scores - low) / torch.where(high > low, high - low, 1.0)
    order = scores.masked_fill(~read, -torch.inf).argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(scores.shape[-1]).expand_as(order)) + 1
    unread = ~read & read.any(-1, keepdim=True)
    columns = [scaled.masked_fill(~read, 0.0), (1 / rank).masked_fill(~read, 0.0), unread.float()]
    return torch.stack(columns, dim=-1)


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
