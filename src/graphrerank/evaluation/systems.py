"""Systems of an evaluation: ways to rerank, the rankings of each system, and stages after ranking."""

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
    """Named function that scores candidates.

    Attributes:
        name: Name in reports, such as ``gatv2``.
        score: Function that maps candidate graphs to scores ``[N]``, one per candidate.
        reads_graph: Whether the function uses edges. If False, the latency of the system excludes the construction of
            edges.
        inputs: Inputs that the function requires besides scores and edges.
    """

    name: str
    score: Scorer
    reads_graph: bool = True
    inputs: ModelInputs = SCORES


def base_ranking(graphs: CandidateGraphs) -> Tensor:
    """Return the scores ``[N]`` of the retriever.

    Args:
        graphs: Candidate graphs with ``N`` candidates.
    """
    return graphs.x[:, 0]


@dataclass(frozen=True, eq=False)
class RankedSystem:
    """Rankings of one system.

    Attributes:
        name: Name in reports.
        kind: ``checkpoint``, ``pipeline``, ``run`` (a TREC run file) or ``operator`` (without training).
        source: Name or path of the system.
        ranking: Ranking ``[Q, K]``, best first. Rows of queries for which the system returned no passages are padding.
        cost: Time and memory per query. None for a run file.
        fingerprint: SHA-256 of the weights or of the run file. None for other systems.
        calibration: Map from scores to probabilities of relevance. None if the scores are not calibrated.
        confidence: Map from probabilities of relevance to probabilities that the top of a list contains every relevant
            passage. None if the system has no such map.
        on_other_edges: Rankings of the edge ablations by name, such as ``shuffled``.
        routes: Fraction of queries on each path of a router.
    """

    name: str
    kind: str
    source: str
    ranking: Ranking
    cost: Cost | None = None
    fingerprint: str | None = None
    calibration: Calibration | None = None
    confidence: ListConfidence | None = None
    on_other_edges: Mapping[str, Ranking] = field(default_factory=dict)
    routes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class RankedDataset:
    """Rankings of all systems for the same queries of a data set.

    Attributes:
        dataset: Data set of the queries.
        split: Split whose judgements are used.
        queries: Indices of the queries, ``[Q]`` int64, in the order of the rankings' rows.
        systems: Systems in the order of the tables' rows. The last one is the primary system.
        candidates: Candidates ``[Q, K]`` that rerankers ranked. None if no system reranks candidates.
        notes: Sentences for the report, such as the origin of the candidates.

    Raises:
        UserError: If there is no system, if two systems have the same name, or if a ranking does not have ``Q`` rows.
    """

    dataset: Dataset
    split: str
    queries: Tensor
    systems: Sequence[RankedSystem]
    candidates: Ranking | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        names = [system.name for system in self.systems]
        if not names or len(set(names)) != len(names):
            raise UserError(f"`systems` must contain at least one system and no duplicate names, got {names}")
        for system in self.systems:
            if len(system.ranking) != len(self.queries):
                raise UserError(
                    f"`systems` must rank {len(self.queries)} queries each, got {len(system.ranking)} for {system.name}"
                )


@dataclass(frozen=True, eq=False)
class StageResult:
    """Measures, notes and tables that a stage adds to the result of a data set with ``Q`` queries.

    Attributes:
        measures: Scores ``[Q]`` (float64) by system and measure, for all measures of the stage. NaN for queries that a
            measure excludes. All systems must have the same measures, with NaN at the same queries.
        groups: Masks ``[Q]`` bool by kind of group and name of the group. The stage's measures are averaged over each
            group.
        notes: Sentences below the table of quality.
        tables: Additional tables of the report. Tables with ``Table.printed`` are also printed to the terminal.
        extra: Plain JSON that is added to the data set's entry in ``metrics.json``.
        system_extra: Plain JSON by system that is added to the system's entry in ``metrics.json``.
    """

    measures: Mapping[str, Mapping[str, Tensor]]
    groups: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    system_extra: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


class Stage(Protocol):
    """Step after ranking, which is called with the rankings of each data set."""

    @property
    def measures(self) -> Sequence[str]:
        """Names of the measures in :attr:`StageResult.measures`, which become columns of the tables."""

    @property
    def tested(self) -> Sequence[str]:
        """Measures of the stage to run significance tests on, unless the caller selects other measures."""

    def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
        """Score the rankings of a data set.

        Args:
            ranked: Rankings of all systems.
            run_dir: Folder for files of the stage. If None, no files are written.
            seed: Random seed of the evaluation.

        Returns:
            Measures, notes and tables.
        """
