"""Graph Cohesive Smoothing: raise the score of a node towards the mean score of its neighbours."""

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.graph_algebra import row_normalize
from graphrerank.utils.checks import check_positive_share

#: Default distance from the fixed point at which an iteration stops.
TOLERANCE = 1e-6


def num_smoothing_steps(restart_prob: float, tolerance: float = TOLERANCE) -> int:
    r"""Return the number of steps after which an iteration with restarts is close to its fixed point.

    Each step multiplies the distance to the fixed point by at most :math:`1 - c`. Therefore
    :math:`\lceil \ln \epsilon / \ln (1 - c) \rceil` steps reduce it to a fraction :math:`\epsilon` of the initial
    distance. The distance is measured in the maximum norm for GCS and in the L1 norm for PPR.

    Args:
        restart_prob: Restart probability :math:`c`, in (0, 1].
        tolerance: Remaining fraction :math:`\epsilon` of the initial distance.

    Returns:
        Number of steps, at least 1.

    Raises:
        UserError: If ``restart_prob`` is outside (0, 1].

    Example:
        >>> num_smoothing_steps(0.5)
        20
    """
    check_positive_share(restart_prob=restart_prob)
    return 1 if restart_prob == 1 else math.ceil(math.log(tolerance) / math.log(1 - restart_prob))


def graph_cohesive_smoothing(
    scores: Tensor, edge_index: Tensor, edge_weight: Tensor, restart_prob: float = 0.5, num_steps: int = 20
) -> Tensor:
    r"""Smooth the scores of nodes over their neighbours, without lowering any score.

    .. math:: p^{(t+1)} = c\,s + (1 - c)\,W p^{(t)}, \qquad p^{(0)} = s, \qquad \text{result} = \max(p, s)

    with :math:`W` row-normalised: :math:`W_{ij} = A_{ij} / \sum_k A_{ik}`. The function can be scripted and accepts a
    packed batch of graphs.

    Source: GraphER, Algorithm 1, where :math:`c` is called the damping factor. *Differences from the paper:* the number
    of steps is fixed, which bounds the distance to the fixed point for every graph (see :func:`num_smoothing_steps`).
    The paper stops when the residual is small.

    Args:
        scores: Non-negative node scores :math:`s`, ``[N]``.
        edge_index: Edges ``[2, E]``. Along an edge ``j -> i``, the score of node j flows to node i.
        edge_weight: Non-negative weights :math:`A_{ij}` of the edges, ``[E]``.
        restart_prob: Weight :math:`c` of the original score, in (0, 1]. With 1, the scores are returned unchanged.
        num_steps: Number of iterations.

    Returns:
        Smoothed scores ``[N]``, none below its original. A node without neighbours keeps its score.

    Example:
        >>> edges = torch.tensor([[0, 1], [1, 0]])
        >>> graph_cohesive_smoothing(torch.tensor([1.0, 0.0, 0.5]), edges, torch.ones(2), 0.5)
        tensor([1.0000, 0.3333, 0.5000])
    """
    weight = row_normalize(edge_index, edge_weight, scores.shape[0]) * (1.0 - restart_prob)
    restart = scores * restart_prob
    source, target = edge_index[0], edge_index[1]
    smoothed = scores
    for _ in range(num_steps):  # inlined propagate(): the overhead of calls dominates for small graphs
        flow = smoothed.index_select(0, source) * weight
        smoothed = torch.zeros_like(scores).index_add_(0, target, flow).add_(restart)
    return torch.maximum(smoothed, scores)


class PropagationOperator(nn.Module, ABC):
    """Base of operators that propagate the base scores of candidates along edges, with restarts.

    Args:
        restart_prob: Weight of the base scores in each step, in (0, 1].

    Raises:
        UserError: If ``restart_prob`` is outside (0, 1].
    """

    def __init__(self, *, restart_prob: float = 0.5) -> None:
        super().__init__()
        self.restart_prob = restart_prob
        self.num_steps = num_smoothing_steps(restart_prob)

    @abstractmethod
    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Score the candidates.

        Args:
            graphs: Candidate graphs whose first feature is the base score.

        Returns:
            Scores of all candidates, ``[N]``.
        """


class GCS(PropagationOperator):
    """Score candidate graphs by Graph Cohesive Smoothing of their base scores. See :func:`graph_cohesive_smoothing`.

    Args:
        restart_prob: Weight of the original score, in (0, 1].

    Example:
        >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3])
        >>> graphs = CandidateGraphs(torch.tensor([[1.0], [0.0], [0.5]]), edges, torch.ones(2), ptr)
        >>> GCS(restart_prob=0.5).score(graphs)
        tensor([1.0000, 0.3333, 0.5000])
    """

    def score(self, graphs: CandidateGraphs) -> Tensor:
        """Smooth the base scores.

        Args:
            graphs: Candidate graphs whose first feature is the base score.

        Returns:
            Scores of all candidates, ``[N]``.
        """
        scores, edges, weight = graphs.x[:, 0], graphs.edge_index, graphs.edge_attr
        return graph_cohesive_smoothing(scores, edges, weight, self.restart_prob, self.num_steps)
