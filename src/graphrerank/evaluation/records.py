"""Records of an evaluation, with their table columns and their conversion to and from JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import BeforeValidator, InstanceOf, PlainValidator
from pydantic_core import to_json
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.evaluation.tables import Table, column

RETRIEVER = "retriever"  # name of the baseline that keeps the retriever's ranking of the candidates
READING = "encode"  # name of the stage in which a cross-encoder encodes pairs

# JSON cannot represent NaN, so it is stored as null.
Number = Annotated[float, BeforeValidator(lambda number: math.nan if number is None else number)]
Scores = Annotated[Tensor, PlainValidator(lambda row: torch.tensor(np.array(row, dtype=float)))]


def to_plain(record: Any) -> Any:
    """Return a record as plain JSON. NaN becomes null, and tensors become lists.

    Args:
        record: Record, or any nesting of records, mappings and sequences.
    """
    return json.loads(to_json(record, inf_nan_mode="null", fallback=Tensor.tolist))


@dataclass(frozen=True)
class PairedTest:
    """Comparison of two systems in one measure, over the same queries.

    Attributes:
        system: Name of the system.
        baseline: Name of the other system.
        measure: Name of the measure.
        num_queries: Number of queries that the measure includes.
        difference: Mean score of the system minus that of the baseline, as a fraction.
        interval: 95% paired bootstrap interval of ``difference``.
        effect_size: Mean of the queries' differences divided by their standard deviation (Cohen's d for pairs). NaN if
            no query differs.
        share_changed: Fraction of queries whose scores differ.
        p_randomization: Two-sided p-value of the randomisation test.
        p_greater: One-sided p-value that the system is better.
        p_holm: Two-sided p-value with Holm's correction for all tests of the data set.
        smallest_difference: Smallest true difference, as a fraction, that the test would find with a probability of 80%
            at a level of 5%, given the number of queries and the spread of their differences. NaN if no query differs.
    """

    TITLE = "tests"
    CAPTION = (
        "The last system against every other system: differences in points with 95% intervals, and two-sided paired "
        "tests over queries. p: randomisation test. p Holm: p corrected for all rows of this table. Effect size: mean "
        "of the queries' differences divided by their standard deviation. Smallest visible: difference that these "
        "queries would show with a probability of 80% (p < 0.05, without correction); a smaller one needs more queries."
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
    smallest_difference: Number = field(default=math.nan, metadata=column("smallest visible", "points"))


@dataclass(frozen=True)
class QueryDifference:
    """Query on which the scores of two systems differ.

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
    CAPTION = (
        "The last system against the best other system: queries with the largest gains, then queries with the largest "
        "losses, in percent."
    )

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
        """Score of ``system`` minus score of ``baseline``."""
        return self.system_score - self.baseline_score


@dataclass(frozen=True)
class Breakdown:
    """Mean of every system over one group of queries.

    Attributes:
        by: Kind of group: ``relevant nodes``, or a kind that a stage defines.
        group: Name of the group, such as ``3 to 5``.
        num_queries: Number of queries that the measure includes.
        measure: Name of the measure.
        means: Means by system, as fractions. NaN if the measure includes no query of the group.
    """

    by: str
    group: str
    num_queries: int
    measure: str
    means: Mapping[str, Number]


@dataclass(frozen=True)
class Counterfactual:
    """Edge ablation of a system: the same candidates, reranked with modified edges.

    Attributes:
        system: Name of the system.
        edges: Name of the ablation: ``shuffled``, ``removed`` or ``without TYPE``.
        measure: Name of the measure.
        mean: Mean score with the modified edges, as a fraction.
        difference: Mean score with the original edges minus ``mean``.
        interval: 95% paired bootstrap interval of ``difference``.
        p_randomization: Two-sided p-value of the randomisation test.
        share_changed: Fraction of queries whose top 10 passages change.
    """

    TITLE = "other edges"
    CAPTION = (
        "The same candidates, reranked without edges, without the edges of one type, or with shuffled edges (every "
        "candidate keeps its number of neighbours), and the gain of the original edges in points."
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
        method: Calibration method, ``logistic``.
        num_pairs: Number of pairs of a query and a candidate.
        share_relevant: Fraction of relevant candidates.
        ece: Expected calibration error in ten bins.
        brier: Brier score.
        counts: Number of pairs in each bin of [0, 1].
        probabilities: Mean probability in each bin, NaN in empty bins.
        shares: Fraction of relevant candidates in each bin, NaN in empty bins.
    """

    TITLE = "calibration"
    CAPTION = (
        "Calibration of the probabilities of relevance, over all candidates of all queries: expected calibration error "
        "in ten bins, and Brier score. Predicting the fraction s of relevant candidates for all candidates has the "
        "Brier score s (1 - s)."
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
    """Calibration of the probabilities that the top of a list contains every relevant passage, over all queries.

    Attributes:
        system: Name of the system.
        measure: Measure whose probability of being 1 is predicted, such as ``PR@5``.
        num_queries: Number of queries.
        share_complete: Fraction of queries for which the measure is 1.
        mean_probability: Mean of the predicted probabilities.
        ece: Expected calibration error in ten bins.
        brier: Brier score.
        auc: Area under the ROC curve. NaN if the measure is 1 for all queries or for none.
    """

    TITLE = "confidence"
    CAPTION = (
        "Predicted probability that the top of a query's list contains every relevant passage, and fraction of queries "
        "for which it does. Relevant passages that are not candidates count as missed."
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
    """Number of data sets on which one system is better than another system in one measure.

    Attributes:
        baseline: Name of the other system.
        system: Name of the system.
        measure: Name of the measure.
        datasets: Names of the data sets.
        level: Significance level.
        num_replicated: Number of data sets on which the system is better, by partial conjunction.
        replicated: Names of the data sets on which the difference is significant by Holm's procedure.
        difference: Mean over data sets of the mean difference, as a fraction.
        p_combined: Two-sided p-value of a test over all data sets.
    """

    TITLE = "over all data sets"
    CAPTION = (
        "Wins: number of data sets on which the system is better, with a probability of at most 5% that the number is "
        "too high (partial conjunction by Bonferroni), and the data sets with a significant difference by Holm's "
        "procedure. Difference: mean over data sets. p combined: test by sign flips of all queries, with equal weights "
        "of the data sets. It generalises to other queries, not to other data sets."
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
        ms: ``p50`` and ``p95`` of each stage in milliseconds, one query at a time. ``total`` is the sum of all stages.
        encodings: Mean number of pairs that the cross-encoder encoded, including pairs that were in its cache. None
            without a cross-encoder.
        peak_memory_mib: Peak resident memory of the process while the system ranked, in MiB. None if unknown.
        latency_ms: ``p50`` and ``p95`` in milliseconds, one query at a time: reranking time without the search for
            candidates, or time of all stages of a pipeline. Empty if not timed.
        batch_ms: Mean milliseconds of each stage of a pipeline for many queries at once. ``other`` is the time outside
            all stages. If pairs come from a cache, ``encode`` is their number times ``pair_ms``.
        pair_ms: Milliseconds to encode a pair, measured without the cache of pair vectors. None without such a cache.
    """

    ms: Mapping[str, Mapping[str, Number]]
    encodings: float | None = None
    peak_memory_mib: float | None = None
    latency_ms: Mapping[str, Number] = field(default_factory=dict)
    batch_ms: Mapping[str, Number] = field(default_factory=dict)
    pair_ms: float | None = None


class BrowsedEdge(NamedTuple):
    """Edge between two passages in a query browser. In files, it is a list of three numbers.

    Attributes:
        first: Index of the passage with the smaller index.
        second: Index of the passage with the larger index.
        edge_type: Index of the edge type.
    """

    first: int
    second: int
    edge_type: int


@dataclass(frozen=True)
class BrowsedQuery:
    """Query whose rankings ``report.html`` shows.

    Attributes:
        query_id: Id of the query.
        query_text: Text of the query.
        num_relevant: Number of relevant passages.
        scores: Score of each system, as a fraction. None if the measure excludes the query.
        rankings: First passages of each system, as indices of :attr:`QueryBrowser.passages`. Empty if a system returned
            no passages.
        relevant: Relevant passages of these.
        edges: Edges between these passages.
    """

    query_id: str
    query_text: str
    num_relevant: int
    scores: Sequence[float | None]
    rankings: Sequence[Sequence[int]]
    relevant: Sequence[int]
    edges: Sequence[BrowsedEdge]


@dataclass(frozen=True)
class QueryBrowser:
    """Single queries of a data set with the rankings of all systems.

    Attributes:
        systems: Names of the systems. The last one is the primary system.
        baseline: Index of the system that is shown next to the primary system.
        measure: Measure of the scores.
        passages: Id and beginning of the text of each passage that a query refers to.
        edge_types: Names of the edge types by index.
        queries: Queries, those with the largest difference first.
    """

    systems: Sequence[str]
    baseline: int
    measure: str
    passages: Sequence[tuple[str, str]]
    edge_types: Mapping[int, str]
    queries: Sequence[BrowsedQuery]


@dataclass(frozen=True, eq=False)
class SystemResult:
    """Results of one system on one data set.

    Attributes:
        name: Name in reports.
        kind: ``checkpoint``, ``pipeline``, ``run`` (a TREC run file) or ``operator`` (without training).
        source: Name or path of the system, as in the command.
        values: Scores ``[Q]`` (float64) by measure, as fractions. NaN for queries that a measure excludes.
        intervals: 95% bootstrap interval of the mean over queries, by measure.
        cost: Time and memory per query. None for a run file.
        missing: Ids of the queries for which the system returned no passages. Their scores are 0.
        tied_share: Fraction of queries with a tie in the top 10, or between ranks 10 and 11.
        fingerprint: SHA-256 of the weights or of the run file. None for other systems.
        ranking: Ranking ``[Q, K]``. None if the result was read from files, because rankings are stored in ``runs/``.
        routes: Fraction of queries on each path of a router.
        extra: Plain JSON of stages after ranking.
    """

    TITLE = "systems"
    CAPTION = (
        "Queries for which a system returned no passages score 0. Tied: percentage of queries with a tie in the top 10."
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
        """Mean of each measure over the queries that it includes, NaN if it includes none."""
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
        tested: Measures of the significance tests. Tables of single queries use the first one.
        candidates: Largest number of candidates of a query that checkpoints rerank. None without checkpoints.
        ceiling: Fraction of queries whose relevant passages are all candidates. None without checkpoints.
        base_ceiling: The same fraction before expansion. None without checkpoints.
        tests: Tests of the primary system against every other system.
        query_differences: Queries with the largest gains and losses of the primary system.
        breakdowns: Means over groups of queries.
        counterfactuals: Edge ablations of the systems that use edges.
        reliability: Calibration of the systems with calibrated scores.
        list_reliability: Calibration of the systems with ``list_confidence``.
        notes: Sentences for the report.
        tables: Tables of stages after ranking.
        groups: Row indices of queries by kind of group and name of the group, from stages after ranking.
        grouped: Measures that are averaged over ``groups``.
        extra: Plain JSON of stages after ranking.
        node_ids: Ids of the passages. Empty if the result was read from files.
        drafted: Whether the questions were drafted from the passages, not asked by users.
        browser: Single queries with all rankings. None if the result was read from files.
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
    drafted: bool = False
    browser: InstanceOf[QueryBrowser] | None = None

    @property
    def primary(self) -> str:
        """Name of the system that is compared with all other systems."""
        return list(self.systems)[-1]

    @property
    def measures(self) -> list[str]:
        """Names of the measures, in the order of the tables' columns."""
        return list(next(iter(self.systems.values())).values) if self.systems else []
