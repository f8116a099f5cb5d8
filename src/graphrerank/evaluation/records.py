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
    """One system against another one in one measure, over the same queries."""

    TITLE = "tests"
    CAPTION = (
        "The last system against each other one: points with 95% intervals, and two-sided paired tests over queries. "
        "p: of the randomisation test; p Holm: the same, corrected for all rows of this table. Effect size: mean over "
        "standard deviation of the queries' differences."
    )

    system: str
    baseline: str = field(metadata=column("against", "system"))
    measure: str = field(metadata=column("measure", "text"))
    num_queries: int  # queries that count
    # mean of system minus baseline, as a fraction
    difference: Number = field(metadata=column("difference", "points", note="interval"))
    interval: tuple[Number, Number]  # 95% paired bootstrap interval of `difference`
    effect_size: Number = field(metadata=column("effect size"))  # Cohen's d for pairs; NaN where no query differs
    share_changed: Number = field(metadata=column("queries that differ", "percent"))
    p_randomization: Number = field(metadata=column("p", "p"))  # two-sided
    p_greater: Number  # of the randomisation test, one-sided
    p_holm: Number = field(metadata=column("p Holm", "p"))


@dataclass(frozen=True)
class QueryDifference:
    """A query on which one system does better, or worse, than another by much."""

    TITLE = "queries"
    CAPTION = "Against the best of the others: the queries that gain most, then those that lose most; in percent."

    query_id: str = field(metadata=column("query", "text"))
    query_text: str = field(metadata=column("text", "prose"))
    baseline: str = field(metadata=column("against", "system"))
    measure: str = field(metadata=column("measure", "text"))
    system: str
    num_relevant: int = field(metadata=column("relevant", ",.0f"))
    baseline_score: Number = field(metadata=column("of the other", "percent"))  # as a fraction
    system_score: Number = field(metadata=column("of the last", "percent"))

    @property
    def difference(self) -> float:
        """How far ``system`` is ahead."""
        return self.system_score - self.baseline_score


@dataclass(frozen=True)
class Breakdown:
    """The mean of every system over one group of queries."""

    by: str  # what groups the queries: `relevant nodes`, or a kind of a stage
    group: str  # name of the group, as `3 to 5`
    num_queries: int
    measure: str
    means: Mapping[str, Number]  # by system, as a fraction; NaN where no query counts


@dataclass(frozen=True)
class Counterfactual:
    """Scores of a system on another graph, everything else unchanged."""

    TITLE = "other edges"
    CAPTION = (
        "The same candidates, reranked without edges, without those of one type, or with shuffled ones (each "
        "candidate with as many neighbours as before), and how many points the true edges are worth."
    )

    system: str = field(metadata=column("system", "system"))
    edges: str = field(metadata=column("edges", "text"))  # `shuffled`, `removed` or `without TYPE`
    measure: str = field(metadata=column("measure", "text"))
    mean: Number = field(metadata=column("mean", "percent"))  # on the other graph, as a fraction
    # mean as it is minus `mean`
    difference: Number = field(metadata=column("worth of the true edges", "points", note="interval"))
    interval: tuple[Number, Number]  # 95% paired bootstrap interval of `difference`
    p_randomization: Number = field(metadata=column("p", "p"))  # two-sided
    share_changed: Number = field(metadata=column("queries whose top 10 changed", "percent"))


@dataclass(frozen=True)
class Reliability:
    """How near the probabilities of a calibrated system are to frequencies, over all candidates of all queries."""

    TITLE = "calibration"
    CAPTION = (
        "Scores as probabilities of relevance, over all candidates of all queries: expected calibration error in ten "
        "bins, and the Brier score; that of a share s of relevant candidates alone is s (1 - s)."
    )

    system: str = field(metadata=column("system", "system"))
    method: str = field(metadata=column("calibration", "text"))  # `logistic`
    num_pairs: int = field(metadata=column("candidates", ",.0f"))  # pairs of query and candidate
    share_relevant: Number = field(metadata=column("relevant, %", "percent"))
    ece: Number = field(metadata=column("ECE", ".4f"))  # expected calibration error
    brier: Number = field(metadata=column("Brier score", ".4f"))
    counts: tuple[int, ...]  # pairs in each bin of [0, 1]
    probabilities: tuple[Number, ...]  # their mean probability; NaN in an empty bin
    shares: tuple[Number, ...]  # share of them that are relevant; NaN in an empty bin


@dataclass(frozen=True)
class ListReliability:
    """How near the probabilities that the top of a list is complete are to frequencies, over all queries."""

    TITLE = "confidence"
    CAPTION = (
        "How likely all relevant passages of a query are in the top of its list, as predicted from the list's "
        "probabilities, and how often they are. Relevant passages that are no candidates count as missed."
    )

    system: str = field(metadata=column("system", "system"))
    measure: str = field(metadata=column("measure", "text"))  # what is predicted to be 1, such as `PR@5`
    num_queries: int = field(metadata=column("queries", ",.0f"))
    share_complete: Number = field(metadata=column("complete, %", "percent"))
    mean_probability: Number = field(metadata=column("predicted, %", "percent"))
    ece: Number = field(metadata=column("ECE", ".4f"))
    brier: Number = field(metadata=column("Brier score", ".4f"))
    # area under the ROC curve; NaN where all queries or none are complete
    auc: Number = field(metadata=column("AUC", ".3f"))


@dataclass(frozen=True)
class Replication:
    """On how many data sets one system is ahead of another one in one measure."""

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
    """The cost of a system per query."""

    # `p50` and `p95` of each stage in milliseconds, one query at a time; `total` is all stages together
    ms: Mapping[str, Mapping[str, Number]]
    encodings: float | None = None  # mean pairs that the cross-encoder read, now or before; None where there is none
    peak_memory_mib: float | None = None  # resident memory of the process while the system ranked; None: not known
    # `p50` and `p95` of what the system itself does, one query at a time: of reranking without the search for
    # candidates, or of all stages of a pipeline; empty where not timed
    latency_ms: Mapping[str, Number] = field(default_factory=dict)
    # mean milliseconds of each stage, many queries at once, of a pipeline; `other` is what no stage counts. Where
    # pairs come from a cache, `encode` is their number times `pair_ms`
    batch_ms: Mapping[str, Number] = field(default_factory=dict)
    pair_ms: float | None = None  # of reading a pair, measured past a cache that keeps its vectors; None: no such cache


@dataclass(frozen=True, eq=False)
class SystemResult:
    """One system on one data set."""

    TITLE = "systems"
    CAPTION = (
        "Queries that a system ranked nothing for count as zero. Tied: percent of the queries with a tie in the top 10."
    )

    name: str = field(metadata=column("system", "system"))  # key in reports
    # `checkpoint`, `pipeline`, `run` (a TREC run file) or `operator` (without training)
    kind: str = field(metadata=column("kind", "text"))
    source: str = field(metadata=column("source", "prose"))  # as the command named it
    values: Mapping[str, Scores]  # `[Q]` float64 of each measure, as a fraction; NaN = the query does not count
    intervals: Mapping[str, tuple[Number, Number]]  # 95% bootstrap interval of a mean over queries, of every measure
    cost: Cost | None = None  # None for a run file
    # ids of the queries that it ranked nothing for; they count as zero
    missing: Sequence[str] = field(default=(), metadata=column("queries missing", ",.0f"))
    # share of the queries where a tie of scores straddles rank 10 or lies above it
    tied_share: float | None = field(default=None, metadata=column("tied", "percent"))
    fingerprint: str | None = None  # SHA-256 of its weights or run file; None where it has neither
    # `[Q, K]` nodes of the corpus, or None where read back (`runs/` holds it)
    ranking: InstanceOf[Ranking] | None = None
    routes: Mapping[str, Number] = field(default_factory=dict)  # share of the queries on each path of a router
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON of stages after ranking

    @property
    def means(self) -> dict[str, Number]:
        """Mean of each measure over the queries that count; NaN where none does."""
        return {measure: Number(per_query.nanmean()) for measure, per_query in self.values.items()}


@dataclass(frozen=True, eq=False)
class DatasetResult:
    """All systems on one split of one data set, over the same queries."""

    name: str
    split: str
    fingerprint: str  # SHA-256 of corpus, queries and judgements
    query_ids: Sequence[str]  # `Q` ids, in the order of all values
    query_texts: Sequence[str]
    num_relevant: Sequence[int]  # `Q` numbers of relevant nodes
    systems: Mapping[str, SystemResult]  # by name, in the order of the tables' rows; the last is the primary one
    tested: Sequence[str]  # names of the measures that are tested; tables about queries use the first
    # most candidates of a query that checkpoints rerank, the share of the queries whose relevant nodes are all
    # candidates, and the same before expansion; None where there is no checkpoint
    candidates: int | None = None
    ceiling: float | None = None
    base_ceiling: float | None = None
    tests: Sequence[PairedTest] = ()  # the primary system against every other one
    query_differences: Sequence[QueryDifference] = ()  # the queries on which it gains and loses most
    breakdowns: Sequence[Breakdown] = ()
    counterfactuals: Sequence[Counterfactual] = ()  # of the systems that read the graph
    reliability: Sequence[Reliability] = ()  # of the systems whose scores were calibrated
    list_reliability: Sequence[ListReliability] = ()  # of the systems with a confidence in whole lists
    notes: Sequence[str] = ()  # where the candidates come from, how the runs of a comparison differ
    tables: Sequence[Table] = ()  # of stages after ranking
    # of stages after ranking: rows of queries by kind of group and name of the group, and the measures averaged there
    groups: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    grouped: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON of stages after ranking
    node_ids: Sequence[str] = ()  # of the corpus; empty where read back

    @property
    def primary(self) -> str:
        """Name of the system that the others are compared with."""
        return list(self.systems)[-1]

    @property
    def measures(self) -> list[str]:
        """Names of the measures, in the order of the tables' columns."""
        return list(next(iter(self.systems.values())).values) if self.systems else []
