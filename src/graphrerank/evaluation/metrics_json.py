"""``metrics.json``: means, intervals, costs and comparisons of a study, without its single queries."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from graphrerank.evaluation.cost import peak_memory_mib
from graphrerank.evaluation.findings import Replication
from graphrerank.evaluation.study import DatasetStudy, SystemStudy
from graphrerank.files import write_json


def write_metrics(
    path: Path,
    datasets: Sequence[DatasetStudy],
    across: Sequence[Replication] = (),
    *,
    encoder_counts: Mapping[str, int] | None = None,
) -> None:
    """Write ``metrics.json``: ``datasets`` by name, ``across`` all of them, and the peak of resident memory.

    ``encoder_counts`` are those of an encoder behind an endpoint over the whole run; null in the file without one.
    """
    write_json(
        path,
        {
            "datasets": {dataset.name: dataset_metrics(dataset) for dataset in datasets},
            "across": [finding.to_json() for finding in across],
            "encoder_counts": dict(encoder_counts) if encoder_counts else None,
            "peak_memory_mib": peak_memory_mib(),
        },
    )


def dataset_metrics(dataset: DatasetStudy) -> dict[str, Any]:
    """Return the entry of a data set in ``metrics.json``."""
    return {
        "split": dataset.split,
        "queries": len(dataset.query_ids),
        "candidates": dataset.candidates,
        "ceiling": dataset.ceiling,
        "base_ceiling": dataset.base_ceiling,
        "notes": list(dataset.notes),
        "systems": {name: system_metrics(system) for name, system in dataset.systems.items()},
        **dataset.extra,
        "comparisons": [{**test.to_json(), "p_value": test.p_randomization} for test in dataset.tests],
    }


def system_metrics(system: SystemStudy) -> dict[str, Any]:
    """Return the entry of a system in ``metrics.json``: its means by the measures' names, and its other results.

    ``latency_ms`` is the system's own time: of a reranker without the search for candidates, which ``cost`` includes.
    """
    return {
        **system.means,
        "interval": {measure: list(ends) for measure, ends in system.intervals.items() if not math.isnan(ends[0])},
        "latency_ms": {} if system.cost is None else dict(system.cost.latency_ms),
        "cost": None if system.cost is None else vars(system.cost),
        "routes": dict(system.routes),
        **system.extra,
        "missing": len(system.missing),
        "tied_share": system.tied_share,
    }
