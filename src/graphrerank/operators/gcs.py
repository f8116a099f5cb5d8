"""Graph Cohesive Smoothing: a node's score is pulled towards its neighbours' average, and never falls."""

import math

import torch
from torch import Tensor, nn

from graphrerank.graphs.algebra import propagate, row_normalize
from graphrerank.graphs.candidate_graphs import CandidateGraphs

TOLERANCE = 1e-6


def num_smoothing_steps(restart_prob: float, tolerance: float = TOLERANCE) -> int:
    r"""Count the steps after which an iteration with this restart is within ``tolerance`` of its fixed point.

    Each step of GCS (of PPR) shrinks the distance to the fixed point, in the largest (in the summed) absolute value, by
    at least :math:`1 - c`; the distance starts at no more than the highest score (at no more than 2), so that
    :math:`\lceil \ln \epsilon / \ln (1 - c) \rceil` steps leave at most :math:`\epsilon` of it.

    Args:
        restart_prob: Probability ``c`` in (0, 1].
        tolerance: Share of that first distance, in (0, 1).

    Raises:
        ValueError: If ``restart_prob`` is outside (0, 1].

    Example:
        >>> num_smoothing_steps(0.5), num_smoothing_steps(1.0)
        (20, 1)
    """
    if not 0 < restart_prob <= 1:
        raise ValueError(f"`restart_prob` must lie in (0, 1], got {restart_prob}")
    return 1 if restart_prob == 1 else math.ceil(math.log(tolerance) / math.log(1 - restart_prob))


def graph_cohesive_smoothing(
    scores: Tensor, edge_index: Tensor, edge_weight: Tensor, restart_prob: float = 0.5, num_steps: int = 20
) -> Tensor:
    r"""Average each node's score with its neighbours', keep a share of its own, and never go below its own.

    .. math:: p^{(t+1)} = c\,s + (1 - c)\,W p^{(t)}, \qquad p^{(0)} = s, \qquad \text{result} = \max(p, s)

    with :math:`W` row-normalised: :math:`W_{ij} = A_{ij} / \sum_k A_{ik}`.

    Source: GraphER, Algorithm 1 (there :math:`c` is the "damping factor"). We iterate a fixed number of steps, which
    bounds the distance to the fixed point for every graph (:func:`num_smoothing_steps`); the paper stops at a small
    residual. Any packed batch of graphs is one call. Scriptable.

    Args:
        scores: ``[N]`` seed scores ``s``, not negative: a node without neighbours holds ``c s`` before the maximum.
        edge_index: ``[2, E]``; the edge ``j -> i`` lets node j's score flow to node i.
        edge_weight: ``[E]`` weights ``A``, not negative.
        restart_prob: Share ``c`` in (0, 1] of a node's own score in each step.
        num_steps: Steps to run.

    Returns:
        ``[N]``, at least ``scores``; a node without neighbours keeps its score.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph_cohesive_smoothing(torch.tensor([1.0, 0.0, 0.5]), edges, torch.ones(2), 0.5)
        tensor([1.0000, 0.3333, 0.5000])
    """
    weight = row_normalize(edge_index, edge_weight, scores.shape[0]) * (1.0 - restart_prob)
    restart = scores * restart_prob
    smoothed = scores
    for _ in range(num_steps):
        smoothed = restart + propagate(smoothed, edge_index, weight)
    return torch.maximum(smoothed, scores)


class GCS(nn.Module):
    """Score candidate graphs by Graph Cohesive Smoothing of their base scores.

    Args:
        restart_prob: Share in (0, 1] of a node's own score in each step.
    """

    def __init__(self, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Return ``[N]``."""
        return graph_cohesive_smoothing(
            graphs.x[:, 0], graphs.edge_index, graphs.edge_attr, self.restart_prob, self.num_steps
        )
