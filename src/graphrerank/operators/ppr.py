"""Personalized PageRank on candidate graphs, seeded by the base scores."""

import torch
from torch import Tensor, nn

from graphrerank.graphs.algebra import column_normalize, graph_index, propagate, scatter_sum
from graphrerank.graphs.candidate_graphs import CandidateGraphs
from graphrerank.operators.gcs import num_smoothing_steps


def personalized_pagerank(
    seed: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor,
    ptr: Tensor,
    *,
    restart_prob: float = 0.5,
    num_steps: int = 20,
) -> Tensor:
    r"""Spread each graph's seed mass along its edges, returning a share of it to the seeds at each step.

    .. math:: p^{(t+1)} = c\,r + (1 - c)\,(P p^{(t)} + m^{(t)} r), \qquad p^{(0)} = r

    with :math:`P` column-normalised, :math:`r` the seeds scaled to sum to 1 in each graph, and :math:`m` the mass at
    nodes without an outgoing edge, which returns to the seeds (as in networkx).

    Source: Page et al., *The PageRank Citation Ranking*, 1999; GraphER, section 2.2. ``restart_prob`` is 1 - ``alpha``
    of networkx and 1 - ``damping`` of igraph. We iterate a fixed number of steps (:func:`num_smoothing_steps`).

    Args:
        seed: ``[N]``, not negative. A graph whose seeds are all 0 is seeded uniformly.
        edge_index: ``[2, E]``, source to target.
        edge_weight: ``[E]``, not negative.
        ptr: ``[B + 1]`` graph boundaries.
        restart_prob: Probability ``c`` in (0, 1] of returning to the seeds at each step.
        num_steps: Power-iteration steps.

    Returns:
        ``[N]``; sums to 1 over each graph (a distribution over nodes, not a relevance in [0, 1]).

    Example:
        >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 2])
        >>> personalized_pagerank(torch.tensor([1.0, 0.0]), edges, torch.ones(2), ptr, restart_prob=0.5)
        tensor([0.6667, 0.3333])
    """
    if (seed < 0).any():
        raise ValueError(f"`seed` must not be negative, got {seed.min().item()}")
    graph, num_graphs, num_nodes = graph_index(ptr), ptr.numel() - 1, seed.shape[0]
    total = scatter_sum(seed, graph, num_graphs)
    size = (ptr[1:] - ptr[:-1]).to(seed.dtype)
    reset = torch.where(total[graph] > 0, seed / total[graph], 1 / size[graph])
    weight = column_normalize(edge_index, edge_weight, num_nodes)
    dangling = (scatter_sum(weight, edge_index[0], num_nodes) == 0).to(seed.dtype)
    mass = reset
    for _ in range(num_steps):
        lost = scatter_sum(mass * dangling, graph, num_graphs)[graph]
        spread = propagate(mass, edge_index, weight) + lost * reset
        mass = restart_prob * reset + (1 - restart_prob) * spread
    return mass


class PPR(nn.Module):
    """Score candidate graphs by personalized PageRank from their base scores; negative scores count as 0."""

    def __init__(self, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates: ``[N]``."""
        return personalized_pagerank(
            graphs.x[:, 0].clamp(min=0),
            graphs.edge_index,
            graphs.edge_attr,
            graphs.ptr,
            restart_prob=self.restart_prob,
            num_steps=self.num_steps,
        )
