"""Settings of ``graphrerank evaluate``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.config.settings.base import TrackedSettings


@dataclass(kw_only=True)
class EvaluateSettings(TrackedSettings):
    """Settings of an evaluation of checkpoints, pipelines and run files on data sets.

    Attributes:
        checkpoint: Checkpoint to evaluate: a run folder, a .ckpt file, an exported artifact, the name of a checkpoint
            that ships with the package, or a list of these. A mapping sets the names of the rows, such as
            'checkpoint={mine: RUN, base: base}'.
        cross_encoder_top_k: Number of top candidates per query that the cross-encoder scores. Only used by checkpoints
            with features=scores_match_typed_cross_encoder.
        baselines: Baselines to compare with checkpoints, in addition to the retriever. Any of: ppr, gcs, rank_fusion
            (reciprocal rank fusion of BM25, dense search and PPR).
        scorers: Additional scorers to compare with the baselines, as names of conf/scorer. Installed
            plugins provide these files.
        systems: Systems to compare: names of conf/pipeline, checkpoints, and paths of TREC run files. In a path,
            {dataset} is replaced by the name of the data set.
        settings: Settings of the pipelines in `systems` and `pipelines`, by name, such as
            settings.fastinsight.budget=50 or settings.ea_graphrag.steps.0.adapter.checkpoint=RUN.
        datasets: Data sets to evaluate on: names of conf/data, or paths of data set folders.
        edges: Edges of all data set folders that are evaluated. auto also extracts edges from the texts, as
            data.edges=auto does for a single data set. null uses the edges of the data sets.
        pipelines: Additional pipelines to compare, as names of conf/pipeline. They precede `pipeline` in the table.
        measures: Measures to report: PR@K, R@K, CR@K (or R_cap@K), nDCG@K, MRR, TR, MissTR, Coverage@K, and any
            expression of ir_measures. An empty list reports the default measures of the systems.
        significance_measures: Measures to run significance tests on, between the last system and every other system;
            must be a subset of `measures`. An empty list tests those of nDCG@10, PR@10 and CR@10 that are reported.
        tested: Deprecated name of `significance_measures`. It will be removed in 0.5.0.
        ties: Order of passages with equal scores. One of: own (order of the system), trec (order of document ids, as in
            trec_eval).
        resamples: Number of sign flips of a randomisation test, and of samples of a bootstrap.
        edge_ablations: Edge ablations to run. Any of: shuffled (shuffle the edges), removed (remove all edges),
            each_type (remove one edge type at a time). Each checkpoint is evaluated again for each ablation. An empty
            list disables ablations.
        counterfactuals: Deprecated name of `edge_ablations`. It will be removed in 0.5.0.
        filter: Filter on passage metadata, such as 'filter={lang: de, date: {gte: "2025-01-01"}}'. Passages that do not
            match do not influence any result (docs/permissions.md).
        num_queries: Maximum number of queries; the first ones in the order of their ids are used. null uses all queries
            of the split.
        split: Split to evaluate on.
        expect: File metrics.json, or its run folder, of an earlier run to compare the results with. The report says
            "same as ..." or lists the differences, in which case the exit status is 1. null disables the comparison.
        seed: Random seed for resampling and for edge shuffling.
        system: Name of the run in the logger.
    """

    checkpoint: Any
    cross_encoder_top_k: int = 20
    baselines: Sequence[str] = ("ppr", "gcs", "rank_fusion")
    scorers: Sequence[str] = ()
    systems: list[Any] = field(default_factory=list)
    settings: Mapping[str, Any] = field(default_factory=dict)
    datasets: list[Any] = field(default_factory=lambda: ["attack"])
    edges: str | None = None
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
