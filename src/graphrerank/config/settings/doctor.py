"""Settings of ``graphrerank doctor DATA``."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class DoctorSettings(TrackedSettings):
    """Settings of a diagnosis: do the edges of a corpus help a reranker?

    Attributes:
        dataset: Data set folder, or a file of conf/data. Without judgements, passages to judge are written.
        checkpoint: Checkpoint that reranks: a run folder, a .ckpt file, an exported artifact, or the name of a
            checkpoint that ships with the package.
        split: Split whose judged queries are used. All judged queries are used if there is no split of that name.
        num_queries: Number of queries, the first ones by id alone. null uses all.
        measures: Measures to compare. An empty list is nDCG@10, R@10 and PR@10.
        resamples: Number of sign flips of a randomisation test, and of samples of a bootstrap.
        seed: Seed of resampling and of shuffled edges.
    """

    dataset: str
    checkpoint: str = "base"
    split: str = "test"
    num_queries: int | None = None
    measures: Sequence[str] = ()
    resamples: int = 10_000
    system: str = "doctor"
