"""Findings of an evaluation other than mean scores: records of plain names and numbers that JSON can hold."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from graphrerank.files import without_nan


@dataclass(frozen=True)
class Finding:
    """A record of names, numbers and tuples of them; NaN is null in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return this record for JSON."""
        return {name: without_nan(entry) for name, entry in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read the output of :meth:`to_json`; other keys are ignored."""
        missing = [entry.name for entry in fields(cls) if entry.name not in content]
        if missing:
            raise ValueError(f"`content` must have the entries of {cls.__name__}, got none named {missing}")
        return cls(**{entry.name: _restored(entry.type, content[entry.name]) for entry in fields(cls)})


@dataclass(frozen=True)
class PairedTest(Finding):
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
class QueryDifference(Finding):
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
class Breakdown(Finding):
    """The mean of every system over one group of queries."""

    by: str  # what groups the queries: `relevant nodes`, `graph density` or `query length`
    group: str  # name of the group, as `3 to 5`
    num_queries: int
    measure: str
    means: Mapping[str, float]  # by system, as a fraction; NaN where no query counts


@dataclass(frozen=True)
class HubBias(Finding):
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
class Counterfactual(Finding):
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
class EdgesOfType(Finding):
    """The edges of one type between the candidates, and whether they lead from relevant candidates to others."""

    edges: str  # one of `EDGE_TYPES`
    per_query: float  # mean number of pairs that they join among a query's candidates
    share_joined: float  # share of the candidates with at least one
    share_reached: float | None  # share of the relevant candidates that have a relevant neighbour; None without any
    share_relevant: float | None  # share of the neighbours of relevant candidates that are relevant; None without any
    base_rate: float  # share of the candidates that are relevant


@dataclass(frozen=True)
class SeedSpread(Finding):
    """Checkpoints that differ in nothing but their seed."""

    systems: tuple[str, ...]
    seeds: tuple[int, ...]
    measure: str
    mean: float  # mean of the systems' means
    std: float  # standard deviation of the systems' means, over n - 1
    lowest: float  # smallest of the systems' means
    highest: float  # largest of them


@dataclass(frozen=True)
class Reliability(Finding):
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
class ListReliability(Finding):
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
class Replication(Finding):
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


def _restored(kind: Any, entry: Any) -> Any:
    """Restore values from JSON: lists become tuples, and null NaN."""
    if kind is float:
        return math.nan if entry is None else float(entry)
    if isinstance(entry, list):
        return tuple(_restored(float if "float" in str(kind) else None, inner) for inner in entry)
    if isinstance(entry, Mapping):
        return {name: _restored(float if "float" in str(kind) else None, inner) for name, inner in entry.items()}
    return entry
