"""A way to rerank candidates."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.graphs.model_inputs import SCORES

Scorer = Callable[[CandidateGraphs], Tensor]


@dataclass(frozen=True)
class System:
    """A named way to rerank candidates."""

    name: str  # key in reports, such as `gatv2`
    score: Scorer  # maps candidate graphs to `[N]` scores
    reads_graph: bool = True  # whether it needs edges; without, its latency holds no graph building
    inputs: ModelInputs = SCORES  # what it reads besides scores and edges


def base_ranking(graphs: CandidateGraphs) -> Tensor:
    """Score candidates as their retriever did."""
    return graphs.x[:, 0]
