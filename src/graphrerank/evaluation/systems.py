"""Systems as an evaluation sees them: ways to rerank, what each ranked, and stages after ranking."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import CandidateGraphs, ModelInputs, Ranking
from graphrerank.core.model_inputs import SCORES
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.records import Cost
from graphrerank.evaluation.tables import Table
from graphrerank.utils.checks import UserError

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


@dataclass(frozen=True, eq=False)
class RankedSystem:
    """One system's rankings of some queries."""

    name: str  # key in reports
    kind: str  # as in `SystemResult`
    source: str  # where it came from
    ranking: Ranking  # `[Q, K]`; a query that it ranked nothing for is all padding
    cost: Cost | None = None  # what it takes, or None
    fingerprint: str | None = None  # SHA-256 of its weights or run file, or None
    calibration: Calibration | None = None  # turns its scores into probabilities
    confidence: ListConfidence | None = None  # turns those into probabilities of a complete top
    on_other_edges: Mapping[str, Ranking] = field(default_factory=dict)  # by kind, such as `shuffled`
    routes: Mapping[str, float] = field(default_factory=dict)  # share of the queries on each path of a router


@dataclass(frozen=True, eq=False)
class RankedDataset:
    """All systems' rankings of the same queries of a data set."""

    dataset: Dataset
    split: str  # whose judgements count
    queries: Tensor  # `[Q]` int64 numbers of queries, in the order of the rankings' rows
    systems: Sequence[RankedSystem]  # the systems, in the order of the tables' rows; the last is the primary one
    candidates: Ranking | None = None  # `[Q, K]`, what rerankers ranked; None where there is none
    notes: Sequence[str] = ()  # what else a reader must know, as where the candidates come from

    def __post_init__(self) -> None:
        names = [system.name for system in self.systems]
        if not names or len(set(names)) != len(names):
            raise UserError(f"`systems` must be one or more of different names, got {names}")
        for system in self.systems:
            if len(system.ranking) != len(self.queries):
                raise UserError(
                    f"`systems` must each rank {len(self.queries)} queries, {system.name} has {len(system.ranking)}"
                )


@dataclass(frozen=True, eq=False)
class StageResult:
    """What a stage adds to the result of a data set; ``Q`` is the number of its queries."""

    # `[Q]` float64 of each measure that the stage names, by system; NaN = the query does not count. All systems have
    # the same measures, NaN at the same queries
    measures: Mapping[str, Mapping[str, Tensor]]
    # `[Q]` bool by kind of group and name of the group: the stage's measures are averaged over each
    groups: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    notes: Sequence[str] = ()  # sentences below the table of quality
    tables: Sequence[Table] = ()  # further tables of the report; `Table.printed` ones also go to the terminal
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON, joins the data set's entry of `metrics.json`
    # plain JSON by system, joins the system's entry of `metrics.json`
    system_extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Stage(Protocol):
    """Called with the rankings of each data set, after all systems ranked it."""

    @property
    def measures(self) -> Sequence[str]:
        """Names of the measures of :attr:`StageResult.measures`, which become columns of the tables."""

    @property
    def tested(self) -> Sequence[str]:
        """Those of them that are tested where the caller names no tests."""

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        """Score what the systems of a data set ranked; files go into ``run_dir``, none without one."""
