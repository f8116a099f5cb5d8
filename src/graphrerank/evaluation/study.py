"""The results of an evaluation: data sets, systems, a score of each query, costs and findings; to JSON and back."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.findings import (
    Breakdown,
    Counterfactual,
    EdgesOfType,
    Finding,
    HubBias,
    ListReliability,
    PairedTest,
    QueryDifference,
    Reliability,
    Replication,
    SeedSpread,
)
from graphrerank.evaluation.query_browser import QueryBrowser
from graphrerank.evaluation.run_json import RETRIEVER, read_run_json, with_new_names
from graphrerank.evaluation.tables import Table
from graphrerank.files import write_text
from graphrerank.graphs import Ranking
from graphrerank.untrusted import check_name

FORMAT = 2  # raise when an older program can no longer read it
OLDER = 1  # can be read: other names of a row and of a measure, fewer costs, no densities
STUDY = "study.json"
READING = "encode"  # the stage in which a cross-encoder reads
NEWER_FINDINGS = ("edges_of_type", "list_reliability")  # which older files lack
LISTS, NEWER_LISTS = ("query_ids", "query_texts", "num_relevant", "tested"), ("densities", "notes")
FINDINGS: dict[str, type[Finding]] = {  # of a data set
    "tests": PairedTest,
    "query_differences": QueryDifference,
    "breakdowns": Breakdown,
    "hub_bias": HubBias,
    "edges_of_type": EdgesOfType,
    "counterfactuals": Counterfactual,
    "seed_spreads": SeedSpread,
    "reliability": Reliability,
    "list_reliability": ListReliability,
}


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
class SystemStudy:
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
    ranking: Ranking | None = None  # `[Q, K]` nodes of the corpus, or None where read back (`runs/` holds it)
    # share of the queries on each path of a router; empty where there is none
    routes: Mapping[str, float] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)  # plain JSON of stages after ranking

    @property
    def means(self) -> dict[str, float]:
        """Mean of each measure over the queries that count; NaN where none does."""
        return {measure: float(per_query.nanmean()) for measure, per_query in self.values.items()}

    def to_json(self) -> dict[str, Any]:
        """Return this system's entry of ``study.json``."""
        return {
            "kind": self.kind,
            "source": self.source,
            "means": {name: _number(mean) for name, mean in self.means.items()},
            "intervals": {name: [_number(end) for end in ends] for name, ends in self.intervals.items()},
            "cost": None if self.cost is None else vars(self.cost),
            "missing": list(self.missing),
            "tied_share": self.tied_share,
            "config": self.config,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "routes": dict(self.routes),
            "extra": dict(self.extra),
            "values": {name: [_number(score) for score in row.tolist()] for name, row in self.values.items()},
        }

    @classmethod
    def from_json(cls, name: str, content: Mapping[str, Any]) -> "SystemStudy":
        """Read the output of :meth:`to_json`."""
        return cls(
            name=name,
            values={measure: _row(entries) for measure, entries in content["values"].items()},
            intervals={measure: (_float(low), _float(high)) for measure, (low, high) in content["intervals"].items()},
            cost=None if content["cost"] is None else Cost(**content["cost"]),
            missing=tuple(content["missing"]),
            routes=content.get("routes", {}),
            extra=content.get("extra", {}),
            **{key: content[key] for key in ("kind", "source", "tied_share", "config", "seed", "fingerprint")},
        )


@dataclass(frozen=True, eq=False)
class DatasetStudy:
    """All systems on one split of one data set, over the same queries."""

    name: str  # name of the data set
    split: str
    fingerprint: str  # SHA-256 of corpus, queries and judgements
    query_ids: Sequence[str]  # `Q` ids, in the order of all values
    query_texts: Sequence[str]  # `Q` texts
    num_relevant: Sequence[int]  # `Q` numbers of relevant nodes
    systems: Mapping[str, SystemStudy]  # by name, in the order of the tables' rows; the last is the primary one
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

    def to_json(self) -> dict[str, Any]:
        """Return this data set's entry of ``study.json``."""
        return {
            **{key: getattr(self, key) for key in ("split", "fingerprint", "candidates", "ceiling", "base_ceiling")},
            **{key: list(getattr(self, key)) for key in (*LISTS, *NEWER_LISTS)},
            "systems": {name: system.to_json() for name, system in self.systems.items()},
            **{key: [finding.to_json() for finding in getattr(self, key)] for key in FINDINGS},
            "tables": [table.to_json() for table in self.tables],
            "groups": {by: {name: list(rows) for name, rows in parts.items()} for by, parts in self.groups.items()},
            "grouped": list(self.grouped),
            "extra": dict(self.extra),
            "browser": None if self.browser is None else self.browser.to_json(),
        }

    @classmethod
    def from_json(cls, name: str, content: Mapping[str, Any]) -> "DatasetStudy":
        """Read the output of :meth:`to_json`."""
        check_name(name=name)
        content = {**dict.fromkeys(NEWER_FINDINGS, ()), **content}
        rest: dict[str, Any] = {
            **{key: content[key] for key in ("split", "fingerprint", "candidates", "ceiling", "base_ceiling")},
            **{key: tuple(content[key]) for key in LISTS},
            **{key: tuple(content.get(key, ())) for key in NEWER_LISTS},
            **{key: tuple(kind.from_json(entry) for entry in content[key]) for key, kind in FINDINGS.items()},
            "tables": tuple(Table.from_json(table) for table in content.get("tables", ())),
            **{key: content.get(key, {}) for key in ("groups", "extra")},
            "grouped": tuple(content.get("grouped", ())),
            "browser": QueryBrowser.from_json(content["browser"]) if content.get("browser") else None,
        }
        systems = {key: SystemStudy.from_json(key, entry) for key, entry in content["systems"].items()}
        return cls(name=name, systems=systems, **rest)


@dataclass(frozen=True, eq=False)
class Study:
    """Everything that one run of ``evaluate.py`` found; reports are rendered from it, and from nothing else."""

    command: str  # the command that made it, without folders of this machine
    datasets: Mapping[str, DatasetStudy]  # by name
    across: Sequence[Replication] = ()  # what holds over all data sets; empty where there is one
    # what the numbers depend on besides the data: permutations, level, seed, the rule for ties
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``study.json``."""
        return {
            "format": FORMAT,
            "command": self.command,
            "settings": dict(self.settings),
            "datasets": {name: dataset.to_json() for name, dataset in self.datasets.items()},
            "across": [finding.to_json() for finding in self.across],
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Study":
        """Read the output of :meth:`to_json`, also of older versions."""
        if content["format"] == OLDER:
            content = with_new_names(content)
        return cls(
            command=content["command"],
            datasets={name: DatasetStudy.from_json(name, entry) for name, entry in content["datasets"].items()},
            across=tuple(Replication.from_json(entry) for entry in content["across"]),
            settings=content["settings"],
        )


def write_study(run_dir: Path, study: Study) -> None:
    """Write ``study.json`` into a run folder."""
    write_text(run_dir / STUDY, json.dumps(study.to_json(), allow_nan=False) + "\n")


def read_study(run_dir: Path) -> Study:
    """Read a run folder's ``study.json``; a ValueError if there is none, or it is damaged or of another format."""
    return read_run_json(run_dir / STUDY, what="study", forms=(OLDER, FORMAT), build=Study.from_json)


def _number(number: float) -> float | None:
    return None if math.isnan(number) else number


def _float(entry: float | None) -> float:
    return math.nan if entry is None else float(entry)


def _row(entries: Sequence[float | None]) -> Tensor:
    return torch.tensor([_float(entry) for entry in entries], dtype=torch.float64)
