"""Rankings of systems to be evaluated, and their cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from graphrerank.data.dataset import RetrievalDataset
from graphrerank.evaluation.records import Cost
from graphrerank.graphs import Ranking
from graphrerank.graphs.calibration import Calibration
from graphrerank.graphs.list_confidence import ListConfidence


@dataclass(frozen=True, eq=False)
class RankedSystem:
    """One system's rankings of some queries."""

    name: str  # key in reports
    kind: str  # as in `SystemResult`
    source: str  # where it came from
    ranking: Ranking  # `[Q, K]`; a query that it ranked nothing for is all padding
    cost: Cost | None = None  # what it takes, or None
    config: str | None = None  # hash of what it was trained with except for the seed, or None
    seed: int | None = None  # seed of its training, or None
    fingerprint: str | None = None  # SHA-256 of its weights or run file, or None
    calibration: Calibration | None = None  # what turns its scores into probabilities, or None
    confidence: ListConfidence | None = None  # what turns those into probabilities of a complete top, or None
    # what it ranks on a graph with `shuffled` or `removed` edges; empty where not tried
    on_other_edges: Mapping[str, Ranking] = field(default_factory=dict)
    # share of the queries on each path of a router; empty where there is none
    routes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RankedDataset:
    """All systems' rankings of the same queries of a data set.

    Raises:
        ValueError: If there is no system, a name repeats, or a ranking is of other queries.
    """

    dataset: RetrievalDataset
    split: str  # whose judgements count
    queries: Tensor  # `[Q]` int64 numbers of queries, in the order of the rankings' rows
    systems: Sequence[RankedSystem]  # the systems, in the order of the tables' rows; the last is the primary one
    candidates: Ranking | None = None  # `[Q, K]`, what rerankers ranked; None where there is none
    notes: Sequence[str] = ()  # what else a reader must know, as where the candidates come from

    def __post_init__(self) -> None:
        names = [system.name for system in self.systems]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"`systems` must be one or more of different names, got {names}")
        for system in self.systems:
            if len(system.ranking) != len(self.queries):
                raise ValueError(
                    f"`systems` must each rank {len(self.queries)} queries, {system.name} has {len(system.ranking)}"
                )
