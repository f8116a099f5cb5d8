"""Findings of an evaluation other than mean scores: records of plain names and numbers that JSON can hold."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Finding:
    """A record of names, numbers and tuples of them; NaN is null in JSON."""

    def to_json(self) -> dict[str, Any]:
        """Return what JSON holds of this record."""
        return {name: _without_nan(entry) for name, entry in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote; of other keys nothing is read.

        Raises:
            ValueError: If an entry is missing.
        """
        missing = [entry.name for entry in fields(cls) if entry.name not in content]
        if missing:
            raise ValueError(f"`content` must have the entries of {cls.__name__}, got none named {missing}")
        return cls(**{entry.name: _restored(entry.type, content[entry.name]) for entry in fields(cls)})


@dataclass(frozen=True)
class PairedTest(Finding):
    """One system against another one in one measure, over the same queries.

    Attributes:
        system: Name of the one.
        baseline: Name of the other.
        measure: Name of the measure.
        num_queries: Queries that count.
        difference: Mean of system minus baseline, as a fraction.
        interval: 95% paired bootstrap interval of ``difference``.
        effect_size: ``difference`` over the standard deviation of the queries' differences (Cohen's d for pairs); NaN
            where no query differs.
        share_changed: Share of the queries on which the two differ.
        p_randomization: Of the paired randomisation test, two-sided.
        p_bootstrap: Of the paired bootstrap test, two-sided.
        p_greater: Of the randomisation test, one-sided: how likely the system would be ahead this far by chance.
        p_holm: ``p_randomization`` corrected for all comparisons of the data set (Holm).
    """

    system: str
    baseline: str
    measure: str
    num_queries: int
    difference: float
    interval: tuple[float, float]
    effect_size: float
    share_changed: float
    p_randomization: float
    p_bootstrap: float
    p_greater: float
    p_holm: float


@dataclass(frozen=True)
class QueryDifference(Finding):
    """A query on which one system does better, or worse, than another by much.

    Attributes:
        system: Name of the one.
        baseline: Name of the other.
        measure: Name of the measure.
        query_id: The query.
        query_text: Its text.
        num_relevant: Its relevant nodes.
        system_score: Measure of the one, as a fraction.
        baseline_score: Measure of the other.
    """

    system: str
    baseline: str
    measure: str
    query_id: str
    query_text: str
    num_relevant: int
    system_score: float
    baseline_score: float


@dataclass(frozen=True)
class Breakdown(Finding):
    """The mean of every system over one group of queries.

    Attributes:
        by: What groups the queries: ``relevant nodes``, ``graph density`` or ``query length``.
        group: Name of the group, as ``3 to 5``.
        num_queries: Its queries.
        measure: Name of the measure.
        means: By system, as a fraction; NaN where no query counts.
    """

    by: str
    group: str
    num_queries: int
    measure: str
    means: Mapping[str, float]


@dataclass(frozen=True)
class HubBias(Finding):
    """Whether a system prefers nodes of many neighbours.

    Attributes:
        system: Its name.
        correlation: Mean over queries of Spearman's rank correlation of score with degree among the top 100; NaN where
            no query has two scores and two degrees that differ.
        relevant_correlation: The same of relevance with degree: what would be no bias.
        lift: Share of hubs in the top 10 over their share in the corpus; 1 is no preference.
        relevant_lift: Share of hubs among relevant nodes over their share in the corpus.
        hub_degree: A hub has this many neighbours or more: the top 10% of the corpus.
    """

    system: str
    correlation: float
    relevant_correlation: float
    lift: float
    relevant_lift: float
    hub_degree: int


@dataclass(frozen=True)
class Counterfactual(Finding):
    """What a system would achieve on another graph, with everything else as it was.

    Attributes:
        system: Its name.
        edges: ``shuffled``, each node with as many neighbours as before, or ``removed``.
        measure: Name of the measure.
        mean: On the other graph, as a fraction.
        difference: Mean of the system on the graph as it is minus ``mean``: what the true edges are worth.
        interval: 95% paired bootstrap interval of ``difference``.
        p_randomization: Of the paired randomisation test, two-sided.
        share_changed: Share of the queries whose top 10 changed.
    """

    system: str
    edges: str
    measure: str
    mean: float
    difference: float
    interval: tuple[float, float]
    p_randomization: float
    share_changed: float


@dataclass(frozen=True)
class SeedSpread(Finding):
    """Checkpoints that differ in nothing but their seed.

    Attributes:
        systems: Their names.
        seeds: Their seeds.
        measure: Name of the measure.
        mean: Mean of the systems' means.
        std: Standard deviation of the systems' means, over n - 1.
        lowest: Smallest of the systems' means.
        highest: Largest of them.
    """

    systems: tuple[str, ...]
    seeds: tuple[int, ...]
    measure: str
    mean: float
    std: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Reliability(Finding):
    """How near the probabilities of a calibrated system are to frequencies, over all candidates of all queries.

    Attributes:
        system: Its name.
        method: How it was calibrated: ``logistic`` or ``isotonic``.
        num_pairs: Pairs of query and candidate.
        share_relevant: Share of them that are relevant.
        ece: Expected calibration error, of as many bins of equal width as there are counts.
        brier: Brier score.
        counts: Pairs in each bin of [0, 1].
        probabilities: Their mean probability; NaN in an empty bin.
        shares: Share of them that are relevant; NaN in an empty bin.
    """

    system: str
    method: str
    num_pairs: int
    share_relevant: float
    ece: float
    brier: float
    counts: tuple[int, ...]
    probabilities: tuple[float, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class Replication(Finding):
    """On how many data sets one system is ahead of another one in one measure.

    Attributes:
        system: Name of the one.
        baseline: Name of the other.
        measure: Name of the measure.
        datasets: Names of the data sets compared on.
        level: Chance of naming too many, such as 0.05.
        num_replicated: On at least as many data sets the win holds (partial conjunction, by Bonferroni; no assumption
            how the data sets depend on each other).
        num_replicated_fisher: The same by Fisher's combination, for independent data sets.
        replicated: The data sets on which the win holds by Holm's procedure over the data sets.
        difference: Mean over the data sets of the mean differences.
        p_combined: Of ``difference``, by sign flips of all queries of all data sets, two-sided.
    """

    system: str
    baseline: str
    measure: str
    datasets: tuple[str, ...]
    level: float
    num_replicated: int
    num_replicated_fisher: int
    replicated: tuple[str, ...]
    difference: float
    p_combined: float


def _without_nan(entry: Any) -> Any:
    if isinstance(entry, float):
        return entry if math.isfinite(entry) else None
    if isinstance(entry, dict):
        return {name: _without_nan(inner) for name, inner in entry.items()}
    return [_without_nan(inner) for inner in entry] if isinstance(entry, list | tuple) else entry


def _restored(kind: Any, entry: Any) -> Any:
    """Undo what JSON did: tuples became lists, and NaN null."""
    if kind is float:
        return math.nan if entry is None else float(entry)
    if isinstance(entry, list):
        return tuple(_restored(float if "float" in str(kind) else None, inner) for inner in entry)
    if isinstance(entry, Mapping):
        return {name: _restored(float if "float" in str(kind) else None, inner) for name, inner in entry.items()}
    return entry
