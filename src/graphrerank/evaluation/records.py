"""The records of an evaluation: systems, data sets and what was found, with their tables; to JSON and back."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BeforeValidator, InstanceOf, PlainValidator
from pydantic_core import to_json
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.evaluation.tables import Table, column

RETRIEVER = "retriever"  # the row of the candidates as their retriever ranked them
READING = "encode"  # the stage in which a cross-encoder reads

# JSON has null for NaN
Number = Annotated[float, BeforeValidator(lambda number: math.nan if number is None else number)]
Scores = Annotated[Tensor, PlainValidator(lambda row: torch.tensor(np.array(row, dtype=float)))]


def to_plain(record: Any) -> Any:
    """Return a record, at any depth, as JSON holds it: NaN becomes null, a tensor a list."""
    return json.loads(to_json(record, inf_nan_mode="null", fallback=Tensor.tolist))


@dataclass(frozen=True)
class PairedTest:
    """One system compared with another one in one measure, over the same queries.

    Attributes:
        system: Name of the system.
        baseline: Name of the system that it is compared with.
        measure: Name of the measure.
        num_queries: Number of queries that count.
        difference: Mean of system minus baseline, as a fraction.
        interval: 95% paired bootstrap interval of ``difference``.
        effect_size: Mean over standard deviation of the queries' differences (Cohen's d for pairs); NaN if no query
            differs.
        share_changed: Share of the queries whose scores differ.
        p_randomization: Two-sided p-value of the randomisation test.
        p_greater: One-sided p-value that the system is better.
        p_holm: Two-sided p-value with Holm's correction for all tests of the data set.
    """

    TITLE = "tests"
    CAPTION = (
        "The last system against each other one: points with 95% intervals, and two-sided paired tests over queries. "
        "p: of the randomisation test; p Holm: the same, corrected for all rows of this table. Effect size: mean over "
        "standard deviation of the queries' differences."
    )

    system: str
    baseline: str = field(metadata=column("against", "system"))
    measure: str = field(metadata=column("measure", "text"))
    num_queries: int
    difference: Number = field(metadata=column("difference", "points", note="interval"))
    interval: tuple[Number, Number]
    effect_size: Number = field(metadata=column("effect size"))
    share_changed: Number = field(metadata=column("queries that differ", "percent"))
    p_randomization: Number = field(metadata=column("p", "p"))
    p_greater: Number
    p_holm: Number = field(metadata=column("p Holm", "p"))


@dataclass(frozen=True)
class QueryDifference:
    """A query on which the scores of two systems differ much.

    Attributes:
        query_id: Id of the query.
        query_text: Text of the query.
        baseline: Name of the other system.
        measure: Name of the measure.
        system: Name of the primary system.
        num_relevant: Number of relevant passages.
        baseline_score: Score of the other system, as a fraction.
        system_score: Score of the primary system, as a fraction.
    """

    TITLE = "queries"
    CAPTION = "Against the best of the others: the queries that gain most, then those that lose most; in percent."

    query_id: str = field(metadata=column("query", "text"))
    query_text: str = field(metadata=column("text", "prose"))
    baseline: str = field(metadata=column("against", "system"))
    measure: str = field(metadata=column("measure", "text"))
    system: str
    num_relevant: int = field(metadata=column("relevant", ",.0f"))
    baseline_score: Number = field(metadata=column("of the other", "percent"))
    system_score: Number = field(metadata=column("of the last", "percent"))

    @property
    def difference(self) -> float:
        """How far ``system`` is ahead."""
        return self.system_score - self.baseline_score


@dataclass(frozen=True)
class Breakdown:
    """Mean of every system over one group of queries.

    Attributes:
        by: Kind of group: ``relevant nodes``, or a kind that a stage defines.
        group: Name of the group, such as ``3 to 5``.
        num_queries: Number of queries that count.
        measure: Name of the measure.
        means: Means by system, as fractions; NaN if no query counts.
    """

    by: str
    group: str
    num_queries: int
    measure: str
    means: Mapping[str, Number]


@dataclass(frozen=True)
class Counterfactual:
    """An edge ablation of a system: the same candidates, reranked with other edges.

    Attributes:
        system: Name of the system.
        edges: Name of the ablation: ``shuffled``, ``removed`` or ``without TYPE``.
        measure: Name of the measure.
        mean: Mean with the other edges, as a fraction.
        difference: Mean with the true edges minus ``mean``.
        interval: 95% paired bootstrap interval of ``difference``.
        p_randomization: Two-sided p-value of the randomisation test.
        share_changed: Share of the queries whose top 10 changed.
    """

    TITLE = "other edges"
    CAPTION = (
        "The same candidates, reranked without edges, without those of one type, or with shuffled ones (each "
        "candidate with as many neighbours as before), and how many points the true edges are worth."
    )

    system: str = field(metadata=column("system", "system"))
    edges: str = field(metadata=column("edges", "text"))
    measure: str = field(metadata=column("measure", "text"))
    mean: Number = field(metadata=column("mean", "percent"))
    difference: Number = field(metadata=column("worth of the true edges", "points", note="interval"))
    interval: tuple[Number, Number]
    p_randomization: Number = field(metadata=column("p", "p"))
    share_changed: Number = field(metadata=column("queries whose top 10 changed", "percent"))


@dataclass(frozen=True)
class Reliability:
    """Calibration of the probabilities of relevance, over all candidates of all queries.

    Attributes:
        system: Name of the system.
        method: Method of calibration: ``logistic``.
        num_pairs: Number of pairs of a query and a candidate.
        share_relevant: Share of relevant candidates.
        ece: Expected calibration error in ten bins.
        brier: Brier score.
        counts: Number of pairs in each bin of [0, 1].
        probabilities: Mean probability in each bin; NaN in an empty bin.
        shares: Share of relevant candidates in each bin; NaN in an empty bin.
    """

    TITLE = "calibration"
    CAPTION = (
        "Scores as probabilities of relevance, over all candidates of all queries: expected calibration error in ten "
        "bins, and the Brier score; that of a share s of relevant candidates alone is s (1 - s)."
    )

    system: str = field(metadata=column("system", "system"))
    method: str = field(metadata=column("calibration", "text"))
    num_pairs: int = field(metadata=column("candidates", ",.0f"))
    share_relevant: Number = field(metadata=column("relevant, %", "percent"))
    ece: Number = field(metadata=column("ECE", ".4f"))
    brier: Number = field(metadata=column("Brier score", ".4f"))
    counts: tuple[int, ...]
    probabilities: tuple[Number, ...]
    shares: tuple[Number, ...]


@dataclass(frozen=True)
class ListReliability:
    """Calibration of the probabilities that the top of a list is complete, over all queries.

    Attributes:
        system: Name of the system.
        measure: Measure that is predicted to be 1, such as ``PR@5``.
        num_queries: Number of queries.
        share_complete: Share of the queries whose top is complete.
        mean_probability: Mean of the predicted probabilities.
        ece: Expected calibration error in ten bins.
        brier: Brier score.
        auc: Area under the ROC curve; NaN if all queries or none are complete.
    """

    TITLE = "confidence"
    CAPTION = (
        "How likely all relevant passages of a query are in the top of its list, as predicted from the list's "
        "probabilities, and how often they are. Relevant passages that are no candidates count as missed."
    )

    system: str = field(metadata=column("system", "system"))
    measure: str = field(metadata=column("measure", "text"))
    num_queries: int = field(metadata=column("queries", ",.0f"))
    share_complete: Number = field(metadata=column("complete, %", "percent"))
    mean_probability: Number = field(metadata=column("predicted, %", "percent"))
    ece: Number = field(metadata=column("ECE", ".4f"))
    brier: Number = field(metadata=column("Brier score", ".4f"))
    auc: Number = field(metadata=column("AUC", ".3f"))


@dataclass(frozen=True)
class Replication:
    """Number of data sets on which one system is ahead of another one in one measure.

    Attributes:
        baseline: Name of the other system.
        system: Name of the system.
        measure: Name of the measure.
        datasets: Names of the data sets that were compared.
        level: Significance level.
        num_replicated: Number of data sets on which the win replicates, by partial conjunction.
        replicated: Names of the data sets that Holm's procedure finds.
        difference: Mean over data sets of the mean difference.
        p_combined: Two-sided p-value of the test over all data sets.
    """

    TITLE = "over all data sets"
    CAPTION = (
        "Wins: the win holds on at least this many data sets, with a chance of 5% to count too many (partial "
        "conjunction by Bonferroni); named are those of Holm's procedure. "
        "Difference: mean over data sets. p combined: by sign flips of all queries, each data set with the same "
        "weight; it speaks of other queries, not of other data sets."
    )

    baseline: str = field(metadata=column("against", "system"))
    system: str = field(metadata=column("system", "system"))
    measure: str = field(metadata=column("measure", "text"))
    datasets: tuple[str, ...] = field(metadata=column("data sets", ".0f"))
    level: Number
    num_replicated: int = field(metadata=column("wins", ".0f", note="replicated"))
    replicated: tuple[str, ...]
    difference: Number = field(metadata=column("difference", "points"))
    p_combined: Number = field(metadata=column("p combined", "p"))


@dataclass(frozen=True)
class Cost:
    """Cost of a system per query.

    Attributes:
        ms: ``p50`` and ``p95`` of each stage in milliseconds, one query at a time; ``total`` is all stages together.
        encodings: Mean number of pairs that the cross-encoder read, now or before. None without one.
        peak_memory_mib: Largest resident memory of the process while the system ranked, in MiB. None if unknown.
        latency_ms: ``p50`` and ``p95`` of the system's own time, one query at a time: of reranking without the search
            for candidates, or of all stages of a pipeline. Empty if not timed.
        batch_ms: Mean milliseconds of each stage of a pipeline, many queries at once; ``other`` is what no stage
            counts. If pairs come from a cache, ``encode`` is their number times ``pair_ms``.
        pair_ms: Milliseconds to read a pair, measured past the cache of vectors. None without such a cache.
    """

    ms: Mapping[str, Mapping[str, Number]]
    encodings: float | None = None
    peak_memory_mib: float | None = None
    latency_ms: Mapping[str, Number] = field(default_factory=dict)
    batch_ms: Mapping[str, Number] = field(default_factory=dict)
    pair_ms: float | None = None


@dataclass(frozen=True, eq=False)
class SystemResult:
    """Results of one system on one data set.

    Attributes:
        name: Name in reports.
        kind: ``checkpoint``, ``pipeline``, ``run`` (a TREC run file) or ``operator`` (without training).
        source: Name or path of the system, as the command named it.
        values: Scores ``[Q]`` float64 by measure, as fractions; NaN where a query does not count.
        intervals: 95% bootstrap interval of the mean over queries, by measure.
        cost: Time and memory per query. None for a run file.
        missing: Ids of the queries that the system ranked nothing for. They count as zero.
        tied_share: Share of the queries with equal scores in the top 10, or on both sides of its end.
        fingerprint: SHA-256 of the weights or the run file. None if there is neither.
        ranking: Ranking ``[Q, K]``. None if the result was read from files (``runs/`` holds the ranking).
        routes: Share of the queries on each path of a router.
        extra: Plain JSON of stages after ranking.
    """

    TITLE = "systems"
    CAPTION = (
        "Queries that a system ranked nothing for count as zero. Tied: percent of the queries with a tie in the top 10."
    )

    name: str = field(metadata=column("system", "system"))
    kind: str = field(metadata=column("kind", "text"))
    source: str = field(metadata=column("source", "prose"))
    values: Mapping[str, Scores]
    intervals: Mapping[str, tuple[Number, Number]]
    cost: Cost | None = None
    missing: Sequence[str] = field(default=(), metadata=column("queries missing", ",.0f"))
    tied_share: float | None = field(default=None, metadata=column("tied", "percent"))
    fingerprint: str | None = None
    ranking: InstanceOf[Ranking] | None = None
    routes: Mapping[str, Number] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def means(self) -> dict[str, Number]:
        """Mean of each measure over the queries that count; NaN where none does."""
        return {measure: Number(per_query.nanmean()) for measure, per_query in self.values.items()}


@dataclass(frozen=True, eq=False)
class DatasetResult:
    """Results of all systems on one split of one data set, over the same queries.

    Attributes:
        name: Name of the data set.
        split: Split whose judgements were used.
        fingerprint: SHA-256 of corpus, queries and judgements.
        query_ids: Ids of the ``Q`` queries, in the order of all scores.
        query_texts: Texts of the queries.
        num_relevant: Number of relevant passages of each query.
        systems: Results by name, in the order of the tables' rows. The last one is the primary system.
        tested: Measures that are tested. Tables of single queries use the first one.
        candidates: Largest number of candidates of a query that checkpoints rerank. None without checkpoints.
        ceiling: Share of the queries whose relevant passages are all candidates. None without checkpoints.
        base_ceiling: The same share before expansion. None without checkpoints.
        tests: Tests of the primary system against every other one.
        query_differences: Queries on which the primary system gains and loses most.
        breakdowns: Means over groups of queries.
        counterfactuals: Edge ablations of the systems that read edges.
        reliability: Calibration of the systems whose scores are calibrated.
        list_reliability: Calibration of the systems with a confidence in whole lists.
        notes: Sentences for the report.
        tables: Tables of stages after ranking.
        groups: Row numbers of queries by kind of group and name of the group, from stages after ranking.
        grouped: Measures that are averaged over ``groups``.
        extra: Plain JSON of stages after ranking.
        node_ids: Ids of the passages. Empty if the result was read from files.
    """

    name: str
    split: str
    fingerprint: str
    query_ids: Sequence[str]
    query_texts: Sequence[str]
    num_relevant: Sequence[int]
    systems: Mapping[str, SystemResult]
    tested: Sequence[str]
    candidates: int | None = None
    ceiling: float | None = None
    base_ceiling: float | None = None
    tests: Sequence[PairedTest] = ()
    query_differences: Sequence[QueryDifference] = ()
    breakdowns: Sequence[Breakdown] = ()
    counterfactuals: Sequence[Counterfactual] = ()
    reliability: Sequence[Reliability] = ()
    list_reliability: Sequence[ListReliability] = ()
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    groups: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    grouped: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    node_ids: Sequence[str] = ()

    @property
    def primary(self) -> str:
        """Name of the system that the others are compared with."""
        return list(self.systems)[-1]

    @property
    def measures(self) -> list[str]:
        """Names of the measures, in the order of the tables' columns."""
        return list(next(iter(self.systems.values())).values) if self.systems else []
