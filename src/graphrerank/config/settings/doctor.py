"""Settings of ``graphrerank doctor DATA``."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class DoctorSettings(TrackedSettings):
    """Settings of a diagnosis of whether the edges of a corpus improve reranking.

    Attributes:
        dataset: Data set folder, or the name of a data set in conf/data. If it has no judgements, a sheet of passages
            to judge is written.
        checkpoint: Checkpoint to rerank with: a run folder, a .ckpt file, an exported artifact, or the name of a
            checkpoint that ships with the package.
        split: Split of the judged queries. If the data set has no such split, all judged queries are used.
        num_queries: Maximum number of queries; the first ones in the order of their ids are used. null uses all judged
            queries.
        measures: Measures to compare. An empty list compares nDCG@10, R@10 and PR@10.
        resamples: Number of sign flips of a randomisation test, and of samples of a bootstrap.
        seed: Random seed for resampling and for edge shuffling.
        system: Name of the run in the logger.
    """

    dataset: str
    checkpoint: str = "base"
    split: str = "test"
    num_queries: int | None = None
    measures: Sequence[str] = ()
    resamples: int = 10_000
    system: str = "doctor"
