"""Compare finished runs by the files that they wrote."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from graphrerank.evaluation.comparisons import compare_systems
from graphrerank.evaluation.measuring import EvaluationPlan, parse_measures
from graphrerank.evaluation.query_browser import merge_browsers
from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import across_datasets
from graphrerank.evaluation.tables import percent_cell
from graphrerank.utils.checks import UserError
from graphrerank.utils.run_files import NOT_MEANS

TOLERANCE = 1e-6  # largest difference between two means (fractions) that counts as equal
NOTHING = "nothing"  # stands for an entry that one of the compared mappings lacks
SYSTEM_RECORDS = ("counterfactuals", "reliability", "list_reliability")  # fields of a result with records per system
ResultOfRun = Mapping[str, DatasetResult]  # results on one data set, by run


def compare_runs(
    results: Mapping[str, EvaluationResult],
    *,
    command: str,
    tested: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> EvaluationResult:
    """Combine the systems of several runs into one result, on the data sets that all runs evaluated.

    Systems with the same name and the same score on every query are merged. If the scores differ, the name of the run
    is appended to the name of each system. The last system of the last run is the primary system, and all significance
    tests are computed again. Notes in the result describe the differences between the runs.

    Args:
        results: Results by name of the run.
        command: Command line, for the report.
        tested: Measures to run significance tests on. If empty, the tested measures of the first run that every run
            has.
        resamples: Number of random sign flips of each test, and number of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        Combined result.

    Raises:
        UserError: If the runs evaluate different queries, break ties differently, or have no data set or no measure in
            common.
    """
    if len(results) < 2:
        raise UserError(f"`report` must name at least two runs, got {list(results)}")
    first, *others = results.values()
    shared = [name for name in first.datasets if all(name in other.datasets for other in others)]
    if not shared:
        judged = {run: list(result.datasets) for run, result in results.items()}
        raise UserError(f"`report` must name runs with a data set in common, got {judged}")
    ties = {run: result.ties for run, result in results.items()}
    if len(set(ties.values())) > 1:
        raise UserError(f"`report` must name runs that break ties in the same way, got {ties}")
    notes = [f"{run}: {result.command}" for run, result in results.items()]
    for (run, result), (next_run, next_result) in pairwise(results.items()):
        notes += _changes(_settings(result), _settings(next_result), f"in {run}", f"in {next_run}")
    datasets = {}
    for name in shared:
        result_of_run = {run: result.datasets[name] for run, result in results.items()}
        merged, plan = _merged(result_of_run, tested, resamples, seed)
        compared = _with_queries(compare_systems(merged, plan), result_of_run)
        timed = sum(system.cost is not None for system in compared.systems.values()) > 1
        cost_notes = ["time and memory of each system were measured in its own run"] if timed else []
        datasets[name] = replace(compared, notes=(*notes, *compared.notes, *cost_notes))
    settings: dict[str, Any] = {"ties": first.ties, "runs": ", ".join(results), "resamples": resamples, "seed": seed}
    left_out = [f"{run}: {name}" for run, result in results.items() for name in result.datasets if name not in shared]
    if left_out:
        settings["not in all runs"] = "; ".join(left_out)
    across = across_datasets(list(datasets.values()), permutations=resamples, seed=seed)
    return EvaluationResult(command, datasets, across, settings)


def _settings(result: EvaluationResult) -> dict[str, Any]:
    """Return the library versions and the settings of a run by their full keys."""
    return {**flat("versions", result.versions), **flat("config", result.config)}


def _merged(
    result_of_run: ResultOfRun, tested: Sequence[str], resamples: int, seed: int
) -> tuple[DatasetResult, EvaluationPlan]:
    """Combine the systems of all runs on one data set, and plan their tests."""
    _check_same_queries(result_of_run)
    first, *_, last = result_of_run.values()
    measures = [name for name in first.measures if all(name in result.measures for result in result_of_run.values())]
    tested = _tested_measures(result_of_run, tested, measures)
    names = _names(result_of_run)
    systems = _merged_systems(result_of_run, names, measures)
    last_run = list(result_of_run)[-1]
    primary = names[last_run][last.primary]
    systems[primary] = systems.pop(primary)  # the primary system is the last one
    tables = [
        replace(table, title=f"{table.title} of {run}")
        for run, result in result_of_run.items()
        for table in result.tables
    ]
    merged = replace(
        last,
        systems=systems,
        tested=tuple(tested),
        tables=tables,
        grouped=[name for name in last.grouped if name in measures],
        notes=(),
        browser=None,
        **_merged_records(result_of_run, names),
    )
    plan = EvaluationPlan(measures, tested, resamples=resamples, seed=seed, stage=measures)
    return _without_different_candidates(merged, result_of_run), plan


def _tested_measures(result_of_run: ResultOfRun, tested: Sequence[str], measures: Sequence[str]) -> list[str]:
    """Return the measures to test. By default, the measures that the first run tested and every run has."""
    first, *_ = result_of_run.values()
    measures_of_run = {run: result.measures for run, result in result_of_run.items()}
    tested = list(parse_measures(tested, measures)) if tested else [name for name in first.tested if name in measures]
    if lacking := [name for name in tested if name not in measures]:
        raise UserError(
            f"`tested` must be a subset of the measures that every run has, got {lacking}. "
            f"The measures on {first.name} are {measures_of_run}"
        )
    if not tested:
        raise UserError(
            "`report` must name runs with a tested measure in common. "
            f"The measures on {first.name} are {measures_of_run}"
        )
    return tested


def _merged_systems(
    result_of_run: ResultOfRun, names: Mapping[str, Mapping[str, str]], measures: Sequence[str]
) -> dict[str, SystemResult]:
    """Return the systems of all runs by their new names, with the common measures.

    If systems of several runs share a new name, they have equal scores, and the first one is returned.
    """
    systems: dict[str, SystemResult] = {}
    for run, result in result_of_run.items():
        for name, system in result.systems.items():
            new_name = names[run][name]
            scores = {measure: system.values[measure] for measure in measures}
            intervals = {measure: system.intervals[measure] for measure in measures if measure in system.intervals}
            systems.setdefault(new_name, replace(system, name=new_name, values=scores, intervals=intervals))
    return systems


def _merged_records(result_of_run: ResultOfRun, names: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the records per system of all runs by field of the result, without duplicates."""
    merged: dict[str, Any] = {}
    for field in SYSTEM_RECORDS:
        record_of: dict[tuple[str, str, str], Any] = {}
        for run, result in result_of_run.items():
            for record in getattr(result, field):
                new_name = names[run][record.system]
                key = (new_name, getattr(record, "edges", ""), getattr(record, "measure", ""))
                record_of.setdefault(key, replace(record, system=new_name))
        merged[field] = list(record_of.values())
    return merged


def _without_different_candidates(merged: DatasetResult, result_of_run: ResultOfRun) -> DatasetResult:
    """Replace the number of candidates and the ceilings by a note if they differ between runs."""
    candidates = {(result.candidates, result.ceiling, result.base_ceiling) for result in result_of_run.values()}
    if len(candidates) <= 1:
        return merged
    descriptions = [
        f"{run} {result.candidates or 'none'} a query, ceiling of PR {percent_cell(result.ceiling)}"
        for run, result in result_of_run.items()
    ]
    note = f"candidates differ: {'; '.join(descriptions)}"
    return replace(merged, candidates=None, ceiling=None, base_ceiling=None, notes=(note,))


def _with_queries(merged: DatasetResult, result_of_run: ResultOfRun) -> DatasetResult:
    """Add the single queries of the runs, and a note about what the run folders lack."""
    sources: dict[str, tuple[str, str]] = {}
    for run, names in _names(result_of_run).items():
        for name_in_run, name in names.items():
            sources.setdefault(name, (run, name_in_run))
    browsers = {run: result.browser for run, result in result_of_run.items() if result.browser is not None}
    if lacking := [run for run in result_of_run if run not in browsers]:
        note = (
            f"no single queries of {', '.join(lacking)}: the run has no queries.json, which runs of this version "
            "write. Repeat the command of the run"
        )
    else:
        note = "edges between passages that only different runs ranked among the first 10 are not shown"
    merged = replace(merged, notes=(*merged.notes, note))
    return replace(merged, browser=merge_browsers(merged, browsers, sources)) if browsers else merged


def _check_same_queries(result_of_run: ResultOfRun) -> None:
    (run, first), *others = result_of_run.items()
    for other_run, other in others:
        if (first.split, first.fingerprint, *first.query_ids) != (other.split, other.fingerprint, *other.query_ids):
            sizes = [f"{one.split} {one.fingerprint[:12]}, {len(one.query_ids)} queries" for one in (first, other)]
            both = len({*first.query_ids} & {*other.query_ids})
            raise UserError(
                f"{run} and {other_run} must evaluate the same queries of {first.name}, got {' and '.join(sizes)}, "
                f"{both} queries in common"
            )


def _names(result_of_run: ResultOfRun) -> dict[str, dict[str, str]]:
    """Return the name of each system in the comparison, by run and by its name in the run.

    Systems with the same name and equal scores on all queries share the name.
    """
    owners: dict[str, list[SystemResult]] = {}
    for result in result_of_run.values():
        for name, system in result.systems.items():
            owners.setdefault(name, []).append(system)
    ambiguous = {
        name
        for name, (first, *others) in owners.items()
        for other in others
        for measure in {*first.values} & {*other.values}
        if not torch.equal(first.values[measure].nan_to_num(-1), other.values[measure].nan_to_num(-1))
    }
    return {
        run: {name: f"{name} ({run})" if name in ambiguous else name for name in result.systems}
        for run, result in result_of_run.items()
    }


def metric_differences(expected: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    """List the differences between the metrics of a run and expected metrics.

    Data sets, numbers of queries and candidates, and systems are compared exactly. Means and ceilings may differ by
    1e-6. Times and memory are not compared.

    Args:
        expected: Content of the expected ``metrics.json``.
        metrics: Content of the run's ``metrics.json``.

    Returns:
        One line per difference.
    """
    then, now = (_numbers(content) for content in (expected, metrics))
    return _changes(then, now, "expected", "found")


def _numbers(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of ``metrics.json`` to compare."""
    facts = ("split", "queries", "candidates", "ceiling", "base_ceiling")
    numbers: dict[str, Any] = {}
    for name, dataset in metrics["datasets"].items():
        numbers |= {f"{name}: {fact}": dataset.get(fact) for fact in facts}
        for system, entry in dataset["systems"].items():
            means = {key: mean for key, mean in entry.items() if mean is None or isinstance(mean, int | float)}
            numbers |= {f"{name}: {system} {key}": mean for key, mean in means.items() if key not in NOT_MEANS}
    return numbers


def flat(key: str, content: Any) -> dict[str, Any]:
    """Flatten nested entries to a single mapping.

    Args:
        key: Prefix of the keys of the result.
        content: Nested mapping, or a single value.

    Returns:
        Values by full key.

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
    """Return one line for each entry that differs. ``first`` and ``second`` describe the two mappings."""
    lines = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key, NOTHING), after.get(key, NOTHING)
        are_numbers = isinstance(old, float) and isinstance(new, float)
        is_equal = abs(old - new) <= TOLERANCE if are_numbers else old == new
        if not is_equal:
            lines.append(f"{key}: {old} {first}, {new} {second}")
    return lines
