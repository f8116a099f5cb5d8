"""The records of an evaluation: systems, data sets and findings; to JSON and back."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from graphrerank.evaluation.query_browser import QueryBrowser
from graphrerank.evaluation.tables import Table
from graphrerank.graphs import Ranking

RETRIEVER = "retriever"  # the row of the candidates as their retriever ranked them
READING = "encode"  # the stage in which a cross-encoder reads
NOT_IN_FILES = {"in_files": False}  # metadata of a field that files leave out

Record = TypeVar("Record")


def to_plain(record: Any) -> Any:
    """Return a record, at any depth, as JSON holds it: NaN becomes null, a tensor a list."""
    if is_dataclass(record):
        kept = (entry.name for entry in fields(record) if entry.metadata.get("in_files", True))
        return {name: to_plain(getattr(record, name)) for name in kept}
    if isinstance(record, Tensor):
        return to_plain(record.tolist())
    if isinstance(record, Mapping):
        return {key: to_plain(entry) for key, entry in record.items()}
    if isinstance(record, list | tuple):
        return [to_plain(entry) for entry in record]
    return None if isinstance(record, float) and not math.isfinite(record) else record


def from_plain(kind: type[Record], content: Any) -> Record:
    """Build a record from the output of :func:`to_plain`; unknown keys are ignored.

    Raises:
        ValueError: If an entry without a default is missing.
    """
    record: Record = _from_plain(kind, content)
    return record


def _from_plain(kind: Any, content: Any) -> Any:
    parts = get_args(kind)
    if NoneType in parts:
        return None if content is None else _from_plain(parts[0], content)
    if kind is float:
        return math.nan if content is None else float(content)
    if kind is Tensor:
        return torch.tensor([_from_plain(float, entry) for entry in content], dtype=torch.float64)
    if is_dataclass(kind):
        kinds = get_type_hints(kind)
        needed = [entry.name for entry in fields(kind) if entry.default is entry.default_factory is MISSING]
        if missing := [name for name in needed if name not in content]:
            raise ValueError(f"`content` must have the entries of {kind}, got none named {missing}")
        return cast(Any, kind)(
            **{name: _from_plain(kinds[name], entry) for name, entry in content.items() if name in kinds}
        )
    if get_origin(kind) is Mapping:
        return {key: _from_plain(parts[1], entry) for key, entry in content.items()}
    if get_origin(kind) in (Sequence, tuple):
        return tuple(_from_plain(parts[0], entry) for entry in content)
    return content


@dataclass(frozen=True)
class PairedTest:
    """One system against another one in one measure, over the same queries."""

    system: str  # name of the one
    baseline: str  # name of the other
    measure: str
    num_queries: int  # queries that count
    difference: float  # mean of system minus baseline, as a fraction
    interval: tuple[float, float]  # 95% paired bootstrap interval of `difference`
    # `difference` over the standard deviation of the queries' differences (Cohen's d for pairs); NaN where no query
    # differs
    effect_size: float
    share_changed: float  # share of the queries on which the two differ
    p_randomization: float  # of the paired randomisation test, two-sided
    p_bootstrap: float  # of the paired bootstrap test, two-sided
    p_greater: float  # of the randomisation test, one-sided: how likely the system would be ahead this far by chance
    p_holm: float  # `p_randomization` corrected for all comparisons of the data set (Holm)


@dataclass(frozen=True)
class QueryDifference:
    """A query on which one system does better, or worse, than another by much."""

    system: str  # name of the one
    baseline: str  # name of the other
    measure: str
    query_id: str
    query_text: str
    num_relevant: int  # its relevant nodes
    system_score: float  # measure of the one, as a fraction
    baseline_score: float  # measure of the other


@dataclass(frozen=True)
class Breakdown:
    """The mean of every system over one group of queries."""

    by: str  # what groups the queries: `relevant nodes`, `graph density` or `query length`
    group: str  # name of the group, as `3 to 5`
    num_queries: int
    measure: str
    means: Mapping[str, float]  # by system, as a fraction; NaN where no query counts


@dataclass(frozen=True)
class HubBias:
    """Whether a system prefers nodes of many neighbours."""

    system: str
    # mean over queries of Spearman's rank correlation of score with degree among the top 100; NaN where no query has
    # two scores and two degrees that differ
    correlation: float
    relevant_correlation: float  # the same of relevance with degree: what would be no bias
    lift: float  # share of hubs in the top 10 over their share in the corpus; 1 is no preference
    relevant_lift: float  # share of hubs among relevant nodes over their share in the corpus
    hub_degree: int  # a hub has this many neighbours or more: the top 10% of the corpus


@dataclass(frozen=True)
class Counterfactual:
    """Scores of a system on another graph, everything else unchanged."""

    system: str
    edges: str  # `shuffled`, each node with as many neighbours as before, `removed`, or `without TYPE`
    measure: str
    mean: float  # on the other graph, as a fraction
    difference: float  # mean of the system on the graph as it is minus `mean`: what the true edges are worth
    interval: tuple[float, float]  # 95% paired bootstrap interval of `difference`
    p_randomization: float  # of the paired randomisation test, two-sided
    share_changed: float  # share of the queries whose top 10 changed


@dataclass(frozen=True)
class EdgesOfType:
    """The edges of one type between the candidates, and whether they lead from relevant candidates to others."""

    edges: str  # one of `EDGE_TYPES`
    per_query: float  # mean number of pairs that they join among a query's candidates
    share_joined: float  # share of the candidates with at least one
    share_reached: float | None  # share of the relevant candidates that have a relevant neighbour; None without any
    share_relevant: float | None  # share of the neighbours of relevant candidates that are relevant; None without any
    base_rate: float  # share of the candidates that are relevant


@dataclass(frozen=True)
class SeedSpread:
    """Checkpoints that differ in nothing but their seed."""

    systems: tuple[str, ...]
    seeds: tuple[int, ...]
    measure: str
    mean: float  # mean of the systems' means
    std: float  # standard deviation of the systems' means, over n - 1
    lowest: float  # smallest of the systems' means
    highest: float  # largest of them


@dataclass(frozen=True)
class Reliability:
    """How near the probabilities of a calibrated system are to frequencies, over all candidates of all queries."""

    system: str
    method: str  # how it was calibrated: `logistic` or `isotonic`
    num_pairs: int  # pairs of query and candidate
    share_relevant: float  # share of them that are relevant
    ece: float  # expected calibration error, of as many bins of equal width as there are counts
    brier: float  # Brier score
    counts: tuple[int, ...]  # pairs in each bin of [0, 1]
    probabilities: tuple[float, ...]  # their mean probability; NaN in an empty bin
    shares: tuple[float, ...]  # share of them that are relevant; NaN in an empty bin


@dataclass(frozen=True)
class ListReliability:
    """How near the probabilities that the top of a list is complete are to frequencies, over all queries."""

    system: str
    measure: str  # what is predicted to be 1, such as `PR@5`
    num_queries: int
    share_complete: float  # share of the queries for which the measure is 1
    mean_probability: float  # mean probability that it is
    ece: float  # expected calibration error, in ten bins of equal width
    brier: float  # Brier score
    auc: float  # area under the ROC curve; NaN where all queries or none are complete


@dataclass(frozen=True)
class Replication:
    """On how many data sets one system is ahead of another one in one measure."""

    system: str  # name of the one
    baseline: str  # name of the other
    measure: str
    datasets: tuple[str, ...]  # names of the data sets compared on
    level: float  # chance of naming too many, such as 0.05
    # on at least as many data sets the win holds (partial conjunction, by Bonferroni; no assumption how the data sets
    # depend on each other)
    num_replicated: int
    num_replicated_fisher: int  # the same by Fisher's combination, for independent data sets
    replicated: tuple[str, ...]  # the data sets on which the win holds by Holm's procedure over the data sets
    difference: float  # mean over the data sets of the mean differences
    p_combined: float  # of `difference`, by sign flips of all queries of all data sets, two-sided


@dataclass(frozen=True)
class Cost:
    """The cost of a system per query."""

    # `p50` and `p95` of each stage in milliseconds, one query at a time; `total` is all stages together
    ms: Mapping[str, Mapping[str, float]]
    encodings: float | None = None  # mean pairs that the cross-encoder read, now or before; None where there is none
    # mean words of the top 10 passages together, which a language model would read; None where not counted
    tokens: float | None = None
    # largest resident memory of the process while the system ranked; None where not known
    peak_memory_mib: float | None = None
    # `p50` and `p95` of what the system itself does, one query at a time: of reranking without the search for
    # candidates, or of all stages of a pipeline; empty where not timed
    latency_ms: Mapping[str, float] = field(default_factory=dict)
    # mean milliseconds of each stage, many queries at once, of a pipeline; `other` is what no stage counts. Where
    # pairs come from a cache, `encode` is their number times `pair_ms`
    batch_ms: Mapping[str, float] = field(default_factory=dict)
    # milliseconds that the cross-encoder takes to read a pair, measured past a cache that keeps its vectors; None
    # where there is no such cache
    pair_ms: float | None = None

    @property
    def overhead(self) -> float:
        """Share of ``batch_ms`` that is not the cross-encoder's reading; 1 where nothing is read."""
        return 1 - self.batch_ms.get(READING, 0.0) / sum(self.batch_ms.values())


@dataclass(frozen=True, eq=False)
class SystemResult:
    """One system on one data set."""

    name: str  # key in reports
    kind: str  # `checkpoint`, `pipeline`, `run` (a TREC run file) or `operator` (without training)
    source: str  # where it came from, as the command named it
    values: Mapping[str, Tensor]  # `[Q]` float64 of each measure, as a fraction; NaN = the query does not count
    intervals: Mapping[str, tuple[float, float]]  # 95% bootstrap interval of a mean over queries, of every measure
    cost: Cost | None = None  # what it takes, or None for a run file
    missing: Sequence[str] = ()  # ids of the queries that it ranked nothing for; they count as zero
    tied_share: float | None = None  # share of the queries where a tie of scores straddles rank 10 or lies above it
    config: str | None = None  # hash of what it was trained with except for the seed; None where not trained
    seed: int | None = None  # seed of its training, or None
    fingerprint: str | None = None  # SHA-256 of its weights or run file; None where it has neither
    # `[Q, K]` nodes of the corpus, or None where read back (`runs/` holds it)
    ranking: Ranking | None = field(default=None, metadata=NOT_IN_FILES)
    # share of the queries on each path of a router; empty where there is none
    routes: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON of stages after ranking

    @property
    def means(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; NaN where none does."""
        return {measure: float(per_query.nanmean()) for measure, per_query in self.values.items()}


@dataclass(frozen=True, eq=False)
class DatasetResult:
    """All systems on one split of one data set, over the same queries."""

    name: str  # name of the data set
    split: str
    fingerprint: str  # SHA-256 of corpus, queries and judgements
    query_ids: Sequence[str]  # `Q` ids, in the order of all values
    query_texts: Sequence[str]  # `Q` texts
    num_relevant: Sequence[int]  # `Q` numbers of relevant nodes
    systems: Mapping[str, SystemResult]  # by name, in the order of the tables' rows; the last is the primary one
    tested: Sequence[str]  # names of the measures that are tested; findings about queries use the first
    # most candidates of a query that checkpoints rerank; None where there is no checkpoint
    candidates: int | None = None
    # share of the queries whose relevant nodes are all candidates; None where there is no checkpoint
    ceiling: float | None = None
    base_ceiling: float | None = None  # the same before expansion
    tests: Sequence[PairedTest] = ()  # the primary system against every other one
    query_differences: Sequence[QueryDifference] = ()  # the queries on which it gains and loses most
    breakdowns: Sequence[Breakdown] = ()  # means over groups of queries
    hub_bias: Sequence[HubBias] = ()  # a record per system
    edges_of_type: Sequence[EdgesOfType] = ()  # a record per type of edges between the candidates
    counterfactuals: Sequence[Counterfactual] = ()  # records of the systems that read the graph
    seed_spreads: Sequence[SeedSpread] = ()  # records of checkpoints that differ in the seed alone
    reliability: Sequence[Reliability] = ()  # records of the systems whose scores were calibrated
    list_reliability: Sequence[ListReliability] = ()  # records of the systems with a confidence in whole lists
    # `Q` mean numbers of neighbours of a query's candidates among them; empty where not known
    densities: Sequence[float] = ()
    # what else a reader must know: where the candidates come from, how the runs of a comparison differ
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()  # of stages after ranking
    # of stages after ranking: rows of queries by kind of group and name of the group, and the measures averaged there
    groups: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    grouped: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON of stages after ranking
    # `N` ids of the corpus; empty where read back
    node_ids: Sequence[str] = field(default=(), metadata=NOT_IN_FILES)
    browser: QueryBrowser | None = None  # its queries one by one; None where the rankings were read back

    @property
    def baseline(self) -> str | None:
        """Name of the system whose queries are set against the primary one's: the retriever, else the first other."""
        others = [name for name in self.systems if name != self.primary]
        return RETRIEVER if RETRIEVER in others else others[0] if others else None

    @property
    def primary(self) -> str:
        """Name of the system that the others are compared with."""
        return list(self.systems)[-1]

    @property
    def measures(self) -> list[str]:
        """Names of the measures, in the order of the tables' columns."""
        return list(next(iter(self.systems.values())).values) if self.systems else []
