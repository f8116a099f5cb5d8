"""A stage after ranking: it reads what every system ranked, and adds measures, notes and tables to an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor

from graphrerank.evaluation.ranked_system import RankedDataset
from graphrerank.evaluation.tables import Table


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
        """Score what the systems of a data set ranked.

        Args:
            ranked: The data set, its queries ``[Q]`` and the systems' rankings; the last system is the primary one.
            run_dir: Folder for the stage's files; None: write none.
            seed: Seed of resampling.
        """
