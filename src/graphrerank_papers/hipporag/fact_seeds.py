"""From a query to entities: the facts most similar to it, and the weights of the entities in these facts."""

import torch
from torch import Tensor

from graphrerank.checks import check_choice, check_counts
from graphrerank.graphs import Ranking, top_k_by_node_order
from graphrerank.graphs.sparse_rows import pad_rows, positions_in_rows

COMBINATIONS = ("last", "mean", "sum")


def find_facts(queries: Tensor, facts: Tensor, *, top_k: int = 5) -> Ranking:
    r"""Rank facts by their normalised similarity to each query.

    .. math:: s_i = \langle M(q), M(f_i) \rangle, \qquad \tilde s_i = \frac{s_i - \min s}{\max s - \min s}

    Source: "EA-GraphRAG", 2026, Eq. (4) and TopK of Eq. (5). The paper does not say how similarities are normalised; we
    follow HippoRAG 2, where equal similarities become 1. Facts without positive similarity are not retrieved.

    Args:
        queries: ``[B, d]``.
        facts: ``[F, d]``.
        top_k: Facts per query, at least 1.

    Returns:
        ``[B, top_k]`` fact indices and :math:`\tilde s` in [0, 1], ties broken by index.

    Raises:
        ValueError: If shapes do not fit, or ``top_k`` is below 1.

    Example:
        >>> find_facts(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.1], [0.9, 0.0], [0.1, 0.0]]), top_k=2).scores
        tensor([[1.0000, 0.5000]])
    """
    if queries.dim() != 2 or facts.dim() != 2 or (len(facts) and queries.shape[1] != facts.shape[1]):
        raise ValueError(
            f"`queries` and `facts` must be [B, d] and [F, d], got {list(queries.shape)} and {list(facts.shape)}"
        )
    if not len(facts):
        return Ranking(*top_k_by_node_order(queries.new_zeros(len(queries), 0), top_k))
    similarity = queries @ facts.T
    nodes, scores = top_k_by_node_order(similarity.masked_fill(similarity <= 0, -torch.inf), top_k)
    lowest, highest = similarity.amin(1, keepdim=True), similarity.amax(1, keepdim=True)
    normalised = torch.where(highest > lowest, (scores - lowest) / (highest - lowest), 1.0)
    return Ranking(nodes, normalised.masked_fill(nodes < 0, -torch.inf))


def entity_seeds(
    facts: Tensor, scores: Tensor, ends: Tensor, num_holders: Tensor, *, top_k: int = 5, combination: str = "last"
) -> Ranking:
    r"""Weigh the entities of some facts, and keep those of largest weight.

    .. math:: w(n) = \tilde s_f / |\{c : (n, c) \in E\}|

    Source: "EA-GraphRAG", 2026, section 3.4.2 and Algorithm 1, lines 6 and 7: an entity of several facts has the weight
    of the last of them (``last``). HippoRAG 2 takes their mean.

    Args:
        facts: ``[B, k]`` int64 fact indices in the order of the algorithm, padded with -1.
        scores: ``[B, k]``, not negative; ignored for padding.
        ends: ``[F, 2]`` int64, head and tail of each fact.
        num_holders: ``[E]`` number of passages that contain each entity; 0 counts as 1.
        top_k: Entities per query, at least 1.
        combination: ``last``, ``mean`` or ``sum``, over the facts of an entity.

    Returns:
        ``[B, top_k]`` entity indices and weights, ties broken by index.

    Raises:
        ValueError: If ``top_k`` is below 1 or ``combination`` unknown.

    Example:
        >>> facts, ends = torch.tensor([[0, 1]]), torch.tensor([[0, 1], [1, 2]])
        >>> entity_seeds(facts, torch.tensor([[1.0, 0.5]]), ends, torch.tensor([4, 1, 1]), top_k=3)
        Ranking(nodes=tensor([[1, 2, 0]]), scores=tensor([[0.5000, 0.5000, 0.2500]]), features=None, base_nodes=None)
    """
    check_choice(COMBINATIONS, combination=combination)
    check_counts(top_k=top_k)
    num_entities = max(1, len(num_holders))
    row, column = torch.nonzero(facts >= 0, as_tuple=True)  # by row, then in the order of the facts
    entity = ends[facts[row, column]]  # [n, 2]
    score = (scores[row, column].unsqueeze(1) / num_holders[entity].clamp(min=1)).flatten()
    key, inverse = torch.unique((row.unsqueeze(1) * num_entities + entity).flatten(), return_inverse=True)
    if combination == "last":
        position = torch.arange(len(score), device=score.device)
        last = torch.zeros_like(key).scatter_reduce_(0, inverse, position, "amax", include_self=False)
        weight = score[last]
    else:
        weight = score.new_zeros(len(key)).scatter_reduce_(0, inverse, score, combination, include_self=False)
    order = torch.argsort(weight, descending=True, stable=True)  # keys ascend: ties by index
    order = order[torch.argsort(key[order] // num_entities, stable=True)]
    owner, seed, weight = key[order] // num_entities, key[order] % num_entities, weight[order].float()
    is_top = positions_in_rows(owner) < top_k
    nodes = pad_rows(owner[is_top], seed[is_top], len(facts), fill=-1)
    return Ranking(nodes, pad_rows(owner[is_top], weight[is_top], len(facts), fill=-torch.inf)).padded(top_k)
