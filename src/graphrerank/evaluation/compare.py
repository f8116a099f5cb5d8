"""Finished runs side by side, from the files that they wrote, and a run against the metrics of another."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from graphrerank.evaluation.comparisons import compare_systems
from graphrerank.evaluation.measuring import EvaluationPlan, parse_measures
from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import across_datasets
from graphrerank.evaluation.tables import percent_cell
from graphrerank.utils.checks import UserError

TOLERANCE = 1e-6  # of a mean, as a fraction
NOTHING = "nothing"
NO_MEANS = ("missing", "tied_share", "answers")  # entries of a system that are no means
OF_SYSTEMS = ("counterfactuals", "reliability", "list_reliability")  # records about single systems
Parts = Mapping[str, DatasetResult]  # one data set, by run


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
    and every run measured). Notes say how the runs differ. A ValueError if they judge other queries, break ties
    differently, or have no data set or measure in common.
    """
    if len(results) < 2:
        raise UserError(f"`report` must name two runs or more, got {list(results)}")
    first, *others = results.values()
    shared = [name for name in first.datasets if all(name in other.datasets for other in others)]
    if not shared:
        judged = {run: list(result.datasets) for run, result in results.items()}
        raise UserError(f"`report` must name runs over one data set at least, got {judged}")
    ties = {run: result.ties for run, result in results.items()}
    if len(set(ties.values())) > 1:
        raise UserError(f"`report` must name runs that break ties alike, got {ties}")
    notes = [f"{run}: {result.command}" for run, result in results.items()]
    for (run, result), (next_run, next_result) in pairwise(results.items()):
        before, after = (
            {**flat("versions", one.versions), **flat("config", one.config)} for one in (result, next_result)
        )
        notes += _changes(before, after, f"in {run}", f"in {next_run}")
    datasets = {}
    for name in shared:
        compared = compare_systems(
            *_merged({run: result.datasets[name] for run, result in results.items()}, tested, resamples, seed)
        )
        timed = sum(system.cost is not None for system in compared.systems.values()) > 1
        own = ["times and memory of a system are those of its own run"] if timed else []
        datasets[name] = replace(compared, notes=(*notes, *compared.notes, *own))
    settings: dict[str, Any] = {"ties": first.ties, "runs": ", ".join(results), "resamples": resamples, "seed": seed}
    left_out = [f"{run}: {name}" for run, result in results.items() for name in result.datasets if name not in shared]
    if left_out:
        settings["not in all runs"] = "; ".join(left_out)
    across = across_datasets(list(datasets.values()), permutations=resamples, seed=seed)
    return EvaluationResult(command, datasets, across, settings)


def _merged(parts: Parts, tested: Sequence[str], resamples: int, seed: int) -> tuple[DatasetResult, EvaluationPlan]:
    """Join the systems of one data set, and plan their tests."""
    _check_same_queries(parts)
    first, *_, last = parts.values()
    measures = [name for name in first.measures if all(name in part.measures for part in parts.values())]
    known = {run: part.measures for run, part in parts.items()}
    tested = list(parse_measures(tested, measures)) if tested else [name for name in first.tested if name in measures]
    if lacking := [name for name in tested if name not in measures]:
        raise UserError(f"`tested` must be of measures that every run has, got {lacking}; of {first.name}: {known}")
    if not tested:
        raise UserError(f"`report` must name runs that test one measure at least, of {first.name} they have {known}")
    names = _names(parts)
    systems: dict[str, SystemResult] = {}
    records: dict[str, dict[Any, Any]] = {key: {} for key in OF_SYSTEMS}
    for run, part in parts.items():
        for name, system in part.systems.items():
            kept = {measure: system.values[measure] for measure in measures}
            ends = {measure: system.intervals[measure] for measure in measures if measure in system.intervals}
            systems.setdefault(names[run][name], replace(system, name=names[run][name], values=kept, intervals=ends))
        for key in OF_SYSTEMS:
            for record in getattr(part, key):
                name = names[run][record.system]
                facts = name, getattr(record, "edges", ""), getattr(record, "measure", "")
                records[key].setdefault(facts, replace(record, system=name))
    primary = list(names.values())[-1][last.primary]
    systems[primary] = systems.pop(primary)  # to the end
    taken_over: dict[str, Any] = {key: list(found.values()) for key, found in records.items()}
    tables = [replace(table, title=f"{table.title} of {run}") for run, part in parts.items() for table in part.tables]
    merged = replace(
        last,
        systems=systems,
        tested=tuple(tested),
        tables=tables,
        grouped=[name for name in last.grouped if name in measures],
        notes=(),
        **taken_over,
    )
    sets = [(part.candidates, part.ceiling, part.base_ceiling) for part in parts.values()]
    if any(other != sets[-1] for other in sets):
        listed = [
            f"{run} {part.candidates or 'none'} a query, ceiling of PR {percent_cell(part.ceiling)}"
            for run, part in parts.items()
        ]
        note = f"candidates differ: {'; '.join(listed)}"
        merged = replace(merged, candidates=None, ceiling=None, base_ceiling=None, notes=(note,))
    return merged, EvaluationPlan(measures, tested, resamples=resamples, seed=seed, stage=measures)


def _check_same_queries(parts: Parts) -> None:
    (run, first), *others = parts.items()
    for other_run, other in others:
        if (first.split, first.fingerprint, *first.query_ids) != (other.split, other.fingerprint, *other.query_ids):
            sizes = [f"{one.split} {one.fingerprint[:12]}, {len(one.query_ids)} queries" for one in (first, other)]
            both = len({*first.query_ids} & {*other.query_ids})
            raise UserError(
                f"{run} and {other_run} must judge the same queries of {first.name}, got {' and '.join(sizes)}, {both} "
                "of them in both"
            )


def _names(parts: Parts) -> dict[str, dict[str, str]]:
    """Choose each system's name in the comparison, by run and name in it: one where all queries are scored alike."""
    owners: dict[str, list[SystemResult]] = {}
    for part in parts.values():
        for name, system in part.systems.items():
            owners.setdefault(name, []).append(system)
    ambiguous = {
        name
        for name, (first, *rest) in owners.items()
        for other in rest
        for measure in {*first.values} & {*other.values}
        if not torch.equal(first.values[measure].nan_to_num(-1), other.values[measure].nan_to_num(-1))
    }
    return {
        run: {name: f"{name} ({run})" if name in ambiguous else name for name in part.systems}
        for run, part in parts.items()
    }


def metric_differences(expected: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """List where the metrics of a run differ from expected ones, both as ``metrics.json`` holds them, a line each.

    Data sets, queries, candidates and systems must be the same, means and ceilings within 1e-6; times are not compared.
    """
    then, now = (_numbers(content) for content in (expected, metrics))
    return _changes(then, now, "expected", "found")


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """List the compared entries of a ``metrics.json``."""
    facts = ("split", "queries", "candidates", "ceiling", "base_ceiling")
    numbers: dict[str, Any] = {}
    for name, dataset in metrics["datasets"].items():
        numbers |= {f"{name}: {fact}": dataset.get(fact) for fact in facts}
        for system, entry in dataset["systems"].items():
            means = {key: mean for key, mean in entry.items() if mean is None or isinstance(mean, int | float)}
            numbers |= {f"{name}: {system} {key}": mean for key, mean in means.items() if key not in NO_MEANS}
    return numbers


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


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], first: str, second: str) -> list[str]:
    """List the entries that differ."""
    lines = []
    for key in dict.fromkeys([*before, *after]):
        then, now = before.get(key, NOTHING), after.get(key, NOTHING)
        numbers = isinstance(then, float) and isinstance(now, float)
        if not (abs(then - now) <= TOLERANCE if numbers else then == now):
            lines.append(f"{key}: {then} {first}, {now} {second}")
    return lines
