"""Settings of ``graphrerank evaluate``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class EvaluateSettings(TrackedSettings):
    """Settings of a comparison of checkpoints, pipelines and run files on data sets.

    Attributes:
        checkpoint: Checkpoint to evaluate: a run folder, a .ckpt file, an exported artifact, the name of a checkpoint
            that ships with the package, or a list of these.
        cross_encoder_top_k: Number of top candidates per query that the cross-encoder scores. Only used by checkpoints
            of features=scores_match_typed_cross_encoder.
        scorers: Names of conf/scorer, which your packages bring: further systems in addition to gcs and ppr.
        systems: Systems to compare side by side: names of conf/pipeline, checkpoints, and TREC run files (a path, with
            {dataset} for the name of the data set).
        settings: Settings of the pipelines in `systems` and `pipelines`, by name, such as
            settings.fastinsight.budget=50 or settings.ea_graphrag.steps.0.adapter.checkpoint=RUN.
        datasets: Names of conf/data, or paths of data set folders.
        pipelines: Names of conf/pipeline: further rows, before that of `pipeline`.
        measures: Measures to report: PR@K, R@K, CR@K (or R_cap@K), nDCG@K, MRR, TR, MissTR, Coverage@K, and any
            expression of ir_measures. An empty list is what suits the systems.
        significance_measures: Measures to run significance tests on, the last system against every other one; a subset
            of `measures`. An empty list is nDCG@10, PR@10 and CR@10 where they are measured.
        tested: Deprecated name of `significance_measures`; it goes in 0.5.0.
        ties: Order of equal scores. One of: own (as the system ranks them), trec (by document id, as trec_eval does).
        resamples: Number of sign flips of a randomisation test, and of samples of a bootstrap.
        edge_ablations: Edge ablations to run: each checkpoint is evaluated again with edges shuffled, removed, or, for
            each edge type, without this type. Any of: shuffled, removed, each_type. An empty list runs none.
        counterfactuals: Deprecated name of `edge_ablations`; it goes in 0.5.0.
        filter: Filter on metadata of passages, such as 'filter={lang: de, date: {gte: "2025-01-01"}}'. The other
            passages do not influence any result (docs/permissions.md).
        num_queries: Number of queries, the first ones by id alone. null uses all.
        split: Split whose judgements count.
        expect: File metrics.json, or its run folder, to compare the results with. The report says "same as ..." or
            where this run differs, and then the exit status is 1. null compares with nothing.
        seed: Seed of resampling and of shuffled edges.
    """

    checkpoint: Any
    cross_encoder_top_k: int = 20
    scorers: Sequence[str] = ()
    systems: list[Any] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    datasets: list[Any] = field(default_factory=lambda: ["attack"])
    pipelines: Sequence[str] = ()
    measures: Sequence[str] = ()
    significance_measures: Sequence[str] = ()
    tested: Sequence[str] | None = None
    ties: str = "own"
    resamples: int = 10_000
    edge_ablations: Sequence[str] = ("shuffled", "removed", "each_type")
    counterfactuals: Sequence[str] | None = None
    filter: Mapping[str, Any] | None = field(default_factory=dict)
    num_queries: int | None = None
    split: str = "test"
    expect: str | None = None
    system: str = "evaluate"
