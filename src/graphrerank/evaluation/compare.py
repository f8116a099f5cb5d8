"""Finished runs side by side, from the files that they wrote, and a run against the metrics of another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from graphrerank.evaluation.dataset_result import with_comparisons
from graphrerank.evaluation.measuring import EvaluationPlan, parse_measures
from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.replicability import across_datasets
from graphrerank.evaluation.result import EvaluationResult

TOLERANCE = 1e-6  # of a mean, as a fraction
NOTHING = "nothing"
NO_MEANS = ("missing", "tied_share", "answers")  # entries of a system that are no means
Renamed = Mapping[str, Mapping[str, str]]  # run -> name of a system in it -> name in the comparison


def compare_runs(
    results: Mapping[str, EvaluationResult],
    *,
    command: str,
    tested: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> EvaluationResult:
    """Put the systems of several runs into one result, over the data sets that all of them evaluated.

    Two systems of one name are one where they scored every query alike; else the run's name is added to each. The last
    system of the last run is the primary one, and tests are repeated, of ``tested`` (empty: what the first run tested
    and every run measured); findings of single systems are taken over. The notes of a data set say how the runs differ:
    their commands, settings, versions and candidates.
    """
    if len(results) < 2:
        raise ValueError(f"`report` must name two runs or more, got {list(results)}")
    first, *others = results.values()
    shared = [name for name in first.datasets if all(name in other.datasets for other in others)]
    if not shared:
        judged = {run: list(result.datasets) for run, result in results.items()}
        raise ValueError(f"`report` must name runs over one data set at least, got {judged}")
    datasets = {
        name: _compare_dataset({run: result.datasets[name] for run, result in results.items()}, tested, resamples, seed)
        for name in shared
    }
    runs = [f"{run}: {result.command}" for run, result in results.items()]
    for (run, result), (next_run, next_result) in pairwise(results.items()):
        runs += _changes(_facts(result), _facts(next_result), f"in {run}", f"in {next_run}")
    datasets = {
        name: replace(dataset, notes=(*runs, *dataset.notes, *_of_own_runs(dataset)))
        for name, dataset in datasets.items()
    }
    left_out = {run: [name for name in result.datasets if name not in shared] for run, result in results.items()}
    ties = {run: result.settings.get("ties", "own") for run, result in results.items()}
    if len(set(ties.values())) > 1:
        raise ValueError(f"`report` must name runs that break ties alike, got {ties}")
    settings: dict[str, Any] = {
        "ties": ties.popitem()[1],
        "runs": ", ".join(results),
        "resamples": resamples,
        "seed": seed,
    }
    if any(left_out.values()):
        settings["not in all runs"] = "; ".join(
            f"{run}: {', '.join(names)}" for run, names in left_out.items() if names
        )
    across = across_datasets(list(datasets.values()), permutations=resamples, seed=seed)
    return EvaluationResult(command, datasets, across, settings)


def _compare_dataset(
    parts: Mapping[str, DatasetResult], tested: Sequence[str], resamples: int, seed: int
) -> DatasetResult:
    _check_same_queries(parts)
    query_ids = next(iter(parts.values())).query_ids
    parts = {run: _in_order(part, query_ids) for run, part in parts.items()}
    measures = _shared_measures(parts)
    tested = _shared_tests(parts, measures, tested)
    names = _names(parts)
    systems: dict[str, SystemResult] = {}
    for run, part in parts.items():
        for name, system in part.systems.items():
            kept = {measure: system.values[measure] for measure in measures}
            ends = {measure: system.intervals[measure] for measure in measures if measure in system.intervals}
            systems.setdefault(names[run][name], replace(system, name=names[run][name], values=kept, intervals=ends))
    last_run, last = list(parts.items())[-1]
    primary = names[last_run][last.primary]
    systems[primary] = systems.pop(primary)  # to the end
    single: dict[str, Any] = {
        key: _taken_over(parts, names, key)
        for key in ("hub_bias", "counterfactuals", "reliability", "list_reliability")
    }
    merged = _with_candidates(
        replace(
            last,
            systems=systems,
            tested=tuple(tested),
            tables=[
                replace(table, title=f"{table.title} of {run}") for run, part in parts.items() for table in part.tables
            ],
            grouped=[name for name in last.grouped if name in measures],
            browser=None,
            edges_of_type=(),
            **single,
        ),
        parts,
    )
    plan = EvaluationPlan(measures=measures, tested=tested, resamples=resamples, seed=seed, stage=measures)
    return with_comparisons(merged, plan)


def _with_candidates(merged: DatasetResult, parts: Mapping[str, DatasetResult]) -> DatasetResult:
    """Note where the runs' candidates differ; groups by graph density are of one run, the last that knows it."""
    known = {run: part for run, part in parts.items() if part.densities}
    if not known:
        return replace(merged, notes=("no groups by graph density: these runs are of an older program",))
    run, part = list(known.items())[-1]
    sizes = {run: (part.candidates, part.ceiling, part.base_ceiling) for run, part in parts.items()}
    if len(set(sizes.values())) == 1 and all(other.densities == part.densities for other in known.values()):
        return replace(merged, densities=part.densities, notes=())
    described = [
        f"{run} {'none' if candidates is None else f'{candidates} a query, ceiling of PR {100 * (ceiling or 0):.2f}'}"
        for run, (candidates, ceiling, _) in sizes.items()
    ]
    note = f"candidates differ: {'; '.join(described)}; groups by graph density are of {run}"
    return replace(merged, densities=part.densities, candidates=None, ceiling=None, base_ceiling=None, notes=(note,))


def _of_own_runs(dataset: DatasetResult) -> list[str]:
    """Note that times were not measured side by side."""
    timed = sum(system.cost is not None for system in dataset.systems.values())
    return ["times and memory of a system are those of its own run"] if timed > 1 else []


def _in_order(part: DatasetResult, query_ids: Sequence[str]) -> DatasetResult:
    """Put the queries of a result into another order."""
    if part.query_ids == query_ids:
        return part
    row = {query_id: number for number, query_id in enumerate(part.query_ids)}
    rows = torch.tensor([row[query_id] for query_id in query_ids])
    lists: dict[str, Any] = {
        key: tuple(getattr(part, key)[number] for number in rows.tolist())
        for key in ("query_texts", "num_relevant", "densities")
        if getattr(part, key)
    }
    place = torch.argsort(rows).tolist()
    groups = {
        by: {name: [place[number] for number in inside] for name, inside in kinds.items()}
        for by, kinds in part.groups.items()
    }
    systems = {
        name: replace(system, values={measure: row[rows] for measure, row in system.values.items()})
        for name, system in part.systems.items()
    }
    return replace(part, query_ids=query_ids, systems=systems, groups=groups, **lists)


def _check_same_queries(parts: Mapping[str, DatasetResult]) -> None:
    (run, first), *others = parts.items()
    for other_run, other in others:
        ids, other_ids = set(first.query_ids), set(other.query_ids)
        if ids != other_ids:
            strange = sorted(ids ^ other_ids)[0]
            raise ValueError(
                f"{run} and {other_run} judge different queries of {first.name}: {len(ids):,} and {len(other_ids):,}, "
                f"{len(ids & other_ids):,} in both; {strange!r} is in one of them; judge both on the same queries"
            )
        if (first.split, first.fingerprint) != (other.split, other.fingerprint):
            raise ValueError(
                f"{run} and {other_run} judge other data under the name of {first.name}: {first.split} "
                f"{first.fingerprint[:12]} and {other.split} {other.fingerprint[:12]}"
            )


def _shared_measures(parts: Mapping[str, DatasetResult]) -> list[str]:
    first, *others = parts.values()
    return [name for name in first.measures if all(name in other.measures for other in others)]


def _shared_tests(parts: Mapping[str, DatasetResult], measures: Sequence[str], chosen: Sequence[str]) -> list[str]:
    """Return the tested measures: the chosen ones, else those of the first run, of the measures of all runs."""
    first = next(iter(parts.values()))
    if chosen:
        names = list(parse_measures(chosen, measures))
        if lacking := [name for name in names if name not in measures]:
            known = {run: part.measures for run, part in parts.items()}
            raise ValueError(
                f"`tested` must be of measures that every run has, got {lacking}; of {first.name}: {known}"
            )
        return names
    if not (tested := [name for name in first.tested if name in measures]):
        known = {run: list(part.tested) for run, part in parts.items()}
        raise ValueError(f"`report` must name runs that test one measure at least, of {first.name} they test {known}")
    return tested


def _names(parts: Mapping[str, DatasetResult]) -> dict[str, dict[str, str]]:
    """Choose each system's name in the comparison."""
    owners: dict[str, list[SystemResult]] = {}
    for part in parts.values():
        for name, system in part.systems.items():
            owners.setdefault(name, []).append(system)
    ambiguous = {name for name, (first, *rest) in owners.items() if any(not _alike(first, other) for other in rest)}
    return {
        run: {name: f"{name} ({run})" if name in ambiguous else name for name in part.systems}
        for run, part in parts.items()
    }


def _alike(a: SystemResult, b: SystemResult) -> bool:
    """Return whether two systems score every query the same in each measure that both have."""
    return all(
        torch.equal(values.nan_to_num(-1), b.values[measure].nan_to_num(-1))
        for measure, values in a.values.items()
        if measure in b.values
    )


def _taken_over(parts: Mapping[str, DatasetResult], names: Renamed, key: str) -> list[Any]:
    """Collect the findings about single systems, each system once."""
    records: dict[tuple[str, ...], Any] = {}
    for run, part in parts.items():
        for record in getattr(part, key):
            name = names[run][record.system]
            facts = [str(getattr(record, field, "")) for field in ("edges", "measure")]
            records.setdefault((name, *facts), replace(record, system=name))
    return list(records.values())


def metric_differences(
    expected: Mapping[str, Any], metrics: Mapping[str, Any], *, tolerance: float = TOLERANCE
) -> list[str]:
    """List where the metrics of a run differ from expected ones, a line each; times are not compared.

    Data sets, queries, candidates and systems must be the same, means and ceilings within ``tolerance``, a fraction.

    Args:
        expected: Content of a ``metrics.json``.
        metrics: Content of another.
        tolerance: How far two numbers may lie apart.
    """
    then, now = (_numbers(content) for content in (expected, metrics))
    return _changes(then, now, "expected", "found", tolerance)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """List the compared entries of a ``metrics.json``."""
    facts = ("split", "queries", "candidates", "ceiling", "base_ceiling")
    numbers: dict[str, Any] = {}
    for name, dataset in metrics["datasets"].items():
        numbers |= {f"{name}: {fact}": dataset.get(fact) for fact in facts}
        for system, entry in dataset["systems"].items():
            # the means are the other numbers of a system
            means = {key: mean for key, mean in entry.items() if key not in NO_MEANS and _is_number(mean)}
            numbers |= {f"{name}: {system} {measure}": mean for measure, mean in means.items()}
    return numbers


def _is_number(entry: Any) -> bool:
    return entry is None or isinstance(entry, int | float)


def _facts(result: EvaluationResult) -> dict[str, Any]:
    """List the settings and versions that a result depends on, by their whole keys."""
    return {**flat("versions", result.versions), **flat("config", result.config)}


def flat(key: str, content: Any) -> dict[str, Any]:
    """List nested entries by their whole keys.

    Example:
        >>> flat("config", {"a": {"b": 1}})
        {'config a.b': 1}
    """
    if not isinstance(content, Mapping) or not content:
        return {key: content}
    joint = "." if " " in key else " "
    return {
        name: entry for inner, part in content.items() for name, entry in flat(f"{key}{joint}{inner}", part).items()
    }


def _changes(
    before: Mapping[str, Any], after: Mapping[str, Any], first: str, second: str, tolerance: float = 0.0
) -> list[str]:
    """List the entries that differ."""
    lines = []
    for key in dict.fromkeys([*before, *after]):
        then, now = before.get(key, NOTHING), after.get(key, NOTHING)
        numbers = isinstance(then, float) and isinstance(now, float)
        if not (abs(then - now) <= tolerance if numbers else then == now):
            lines.append(f"{key}: {then} {first}, {now} {second}")
    return lines
