"""The measures and tests of an evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.checks import check_choice, check_counts
from graphrerank.evaluation.measuring import MISSED, TIES, TOPOLOGICAL_RECALL, parse_measures
from graphrerank.evaluation.significance import LEVEL, RESAMPLES, check_level

RERANKER_MEASURES = ("PR@5", "PR@10", "PR@5/multi", "PR@10/multi", "R@2", "R@5", "R@10", "nDCG@10")
PIPELINE_MEASURES = ("CR@10", "nDCG@10", "R@5", "R@10", TOPOLOGICAL_RECALL, MISSED)
MIXED_MEASURES = ("nDCG@10", "PR@5", "PR@10", "R@5", "R@10")  # of rerankers beside pipelines and run files
TESTED = ("nDCG@10", "PR@10", "CR@10", "F1", "EM", "Judged")  # those of them that are measured, by default


@dataclass(frozen=True)
class StudyPlan:
    """Measures, comparisons and the confidence of their tests.

    Raises:
        ValueError: If a measure is unknown or named twice, one is tested that is not measured, or a setting is out of
            range.
    """

    # names of measures, the tables' columns; each is kept under its one name (`R_cap@10` is `CR@10`)
    measures: Sequence[str]
    # those of them that are tested; findings about queries use the first. Empty: those of `TESTED` that
    # are measured, else the first measure
    tested: Sequence[str] = ()
    ties: str = "own"  # how ties are broken (`break_ties`)
    resamples: int = RESAMPLES  # sign flips of each test, and bootstrap samples
    level: float = LEVEL  # of intervals
    seed: int = 0  # of sign flips and samples
    stage: Sequence[str] = ()  # those of `measures` that a stage after ranking scores

    def __post_init__(self) -> None:
        measures = tuple(parse_measures(self.measures, self.stage))
        tested = tuple(parse_measures(self.tested, self.stage)) if self.tested else ()
        if strangers := [name for name in tested if name not in measures]:
            raise ValueError(f"`tested` must be of `measures` {list(measures)}, got {strangers}")
        check_choice(TIES, ties=self.ties)
        check_counts(resamples=self.resamples)
        check_level(self.level)
        object.__setattr__(self, "measures", measures)
        object.__setattr__(self, "tested", tested or tuple(n for n in TESTED if n in measures) or measures[:1])
