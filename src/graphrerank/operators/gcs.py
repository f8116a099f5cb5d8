"""Graph Cohesive Smoothing: a node's score moves towards its neighbours' average, and never falls."""

import math

import torch
from torch import Tensor, nn

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.graph_algebra import row_normalize
from graphrerank.utils.checks import check_positive_share

TOLERANCE = 1e-6


def num_smoothing_steps(restart_prob: float, tolerance: float = TOLERANCE) -> int:
    r"""Return the number of steps after which an iteration with restarts is within ``tolerance`` of its fixed point.

    Each step shrinks the distance to the fixed point (of GCS in the maximum norm, of PPR in the L1 norm) by a factor of
    :math:`1 - c` or less: :math:`\lceil \ln \epsilon / \ln (1 - c) \rceil` steps leave a share :math:`\epsilon`.
    """
    check_positive_share(restart_prob=restart_prob)
    return 1 if restart_prob == 1 else math.ceil(math.log(tolerance) / math.log(1 - restart_prob))


def graph_cohesive_smoothing(
    scores: Tensor, edge_index: Tensor, edge_weight: Tensor, restart_prob: float = 0.5, num_steps: int = 20
) -> Tensor:
    r"""Average each node's score with its neighbours', and return the larger of the result and the original.

    .. math:: p^{(t+1)} = c\,s + (1 - c)\,W p^{(t)}, \qquad p^{(0)} = s, \qquad \text{result} = \max(p, s)

    with :math:`W` row-normalised: :math:`W_{ij} = A_{ij} / \sum_k A_{ik}`.

    Source: GraphER, Algorithm 1 (there :math:`c` is the "damping factor"). We iterate a fixed number of steps, which
    bounds the distance to the fixed point for every graph (:func:`num_smoothing_steps`); the paper stops at a small
    residual. A packed batch of graphs is one call. Scriptable.

    ``scores`` ``[N]`` are not negative; along the edge ``j -> i`` of ``edge_index [2, E]`` node j's score flows to node
    i, with weights ``[E]`` that are not negative; ``restart_prob`` in (0, 1] is :math:`c`. Returns ``[N]``, at least
    ``scores``; a node without neighbours keeps its score.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph_cohesive_smoothing(torch.tensor([1.0, 0.0, 0.5]), edges, torch.ones(2), 0.5)
        tensor([1.0000, 0.3333, 0.5000])
    """
    weight = row_normalize(edge_index, edge_weight, scores.shape[0]) * (1.0 - restart_prob)
    restart = scores * restart_prob
    source, target = edge_index[0], edge_index[1]
    smoothed = scores
    for _ in range(num_steps):  # propagate(), with as few calls as possible: for a small graph they are what takes time
        flow = smoothed.index_select(0, source) * weight
        smoothed = torch.zeros_like(scores).index_add_(0, target, flow).add_(restart)
    return torch.maximum(smoothed, scores)


class GCS(nn.Module):
    """Score candidate graphs by Graph Cohesive Smoothing of their base scores."""

    def __init__(self, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates: ``[N]``."""
        scores, edges, weight = graphs.x[:, 0], graphs.edge_index, graphs.edge_attr
        return graph_cohesive_smoothing(scores, edges, weight, self.restart_prob, self.num_steps)
