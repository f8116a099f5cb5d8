"""Finished runs side by side, from what they left behind: nothing is ranked again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from graphrerank.evaluation.across import across_datasets
from graphrerank.evaluation.build_study import StudyPlan, compare_last
from graphrerank.evaluation.findings import Breakdown, QueryDifference
from graphrerank.evaluation.query_analysis import query_differences
from graphrerank.evaluation.seeds import seed_spreads
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy

Renamed = Mapping[str, Mapping[str, str]]  # run -> name of a system in it -> name in the comparison


def compare_runs(studies: Mapping[str, Study], *, command: str, resamples: int = 10_000, seed: int = 0) -> Study:
    """Put the systems of several runs into one study, over the data sets that all of them judged.

    Two systems of one name are one where they scored every query alike; else the run's name is added to each. The last
    system of the last run is the primary one, and tests are made anew; findings of single systems are taken over.

    Args:
        studies: By name of the run, at least two.
        command: What made the comparison.
        resamples: Sign flips of each test, and bootstrap samples.
        seed: Of both.

    Raises:
        ValueError: If there is one run, no data set is in all of them, or they judged one on different queries, data or
            measures, or broke ties in different ways.
    """
    if len(studies) < 2:
        raise ValueError(f"`report` must name two runs or more, got {list(studies)}")
    first, *others = studies.values()
    shared = [name for name in first.datasets if all(name in other.datasets for other in others)]
    if not shared:
        judged = {run: list(study.datasets) for run, study in studies.items()}
        raise ValueError(f"`report` must name runs over one data set at least, got {judged}")
    datasets = {
        name: _compare_dataset({run: study.datasets[name] for run, study in studies.items()}, resamples, seed)
        for name in shared
    }
    left_out = {run: [name for name in study.datasets if name not in shared] for run, study in studies.items()}
    ties = {run: study.settings.get("ties", "own") for run, study in studies.items()}
    if len(set(ties.values())) > 1:
        raise ValueError(f"`report` must name runs that break ties alike, got {ties}")
    settings: dict[str, Any] = {
        "ties": ties.popitem()[1],
        "runs": ", ".join(studies),
        "resamples": resamples,
        "seed": seed,
    }
    if any(left_out.values()):
        settings["not in all runs"] = "; ".join(
            f"{run}: {', '.join(names)}" for run, names in left_out.items() if names
        )
    across = across_datasets(list(datasets.values()), permutations=resamples, seed=seed)
    return Study(command, datasets, across, settings)


def _compare_dataset(parts: Mapping[str, DatasetStudy], resamples: int, seed: int) -> DatasetStudy:
    _check_same_queries(parts)
    measures, tested = _shared_measures(parts)
    names = _names(parts)
    systems: dict[str, SystemStudy] = {}
    for run, part in parts.items():
        for name, system in part.systems.items():
            kept = {measure: system.values[measure] for measure in measures}
            ends = {measure: system.intervals[measure] for measure in measures if measure in system.intervals}
            systems.setdefault(names[run][name], replace(system, name=names[run][name], values=kept, intervals=ends))
    last = list(parts.values())[-1]
    primary = names[list(parts)[-1]][last.primary]
    systems[primary] = systems.pop(primary)  # to the end
    plan = StudyPlan(measures=measures, tested=tested, resamples=resamples, seed=seed)
    own: dict[str, Any] = {
        key: _taken_over(parts, names, key) for key in ("hub_bias", "counterfactuals", "reliability")
    }
    return replace(
        last,
        systems=systems,
        tested=tuple(tested),
        tests=compare_last({name: system.values for name, system in systems.items()}, plan),
        query_differences=_query_differences(last, systems, tested[0]),
        breakdowns=_breakdowns(parts, names, tested[0]),
        seed_spreads=seed_spreads(list(systems.values()), tested),
        **own,
    )


def _check_same_queries(parts: Mapping[str, DatasetStudy]) -> None:
    (run, first), *others = parts.items()
    for other_run, other in others:
        ids, other_ids = set(first.query_ids), set(other.query_ids)
        if ids != other_ids:
            strange = sorted(ids ^ other_ids)[0]
            raise ValueError(
                f"{run} and {other_run} judge different queries of {first.name}: {len(ids):,} and {len(other_ids):,}, "
                f"{len(ids & other_ids):,} in both; {strange!r} is in one of them; judge both on the same queries"
            )
        if (first.split, first.fingerprint) != (other.split, other.fingerprint) or first.query_ids != other.query_ids:
            raise ValueError(
                f"{run} and {other_run} judge other data under the name of {first.name}: {first.split} "
                f"{first.fingerprint[:12]} and {other.split} {other.fingerprint[:12]}"
            )


def _shared_measures(parts: Mapping[str, DatasetStudy]) -> tuple[list[str], list[str]]:
    first, *others = parts.values()
    measures = [name for name in first.measures if all(name in other.measures for other in others)]
    tested = [name for name in first.tested if name in measures]
    if not tested:
        known = {run: list(part.tested) for run, part in parts.items()}
        raise ValueError(f"`report` must name runs that test one measure at least, of {first.name} they test {known}")
    return measures, tested


def _names(parts: Mapping[str, DatasetStudy]) -> dict[str, dict[str, str]]:
    """Choose each system's name in the comparison."""
    owners: dict[str, list[SystemStudy]] = {}
    for part in parts.values():
        for name, system in part.systems.items():
            owners.setdefault(name, []).append(system)
    ambiguous = {name for name, (first, *rest) in owners.items() if any(not _alike(first, other) for other in rest)}
    return {
        run: {name: f"{name} ({run})" if name in ambiguous else name for name in part.systems}
        for run, part in parts.items()
    }


def _alike(a: SystemStudy, b: SystemStudy) -> bool:
    """Tell whether two systems score every query the same in each measure that both have."""
    return all(
        torch.equal(values.nan_to_num(-1), b.values[measure].nan_to_num(-1))
        for measure, values in a.values.items()
        if measure in b.values
    )


def _taken_over(parts: Mapping[str, DatasetStudy], names: Renamed, key: str) -> list[Any]:
    """Collect the findings about single systems, each system once."""
    found: dict[tuple[str, ...], Any] = {}
    for run, part in parts.items():
        for record in getattr(part, key):
            name = names[run][record.system]
            facts = [str(getattr(record, field, "")) for field in ("edges", "measure")]
            found.setdefault((name, *facts), replace(record, system=name))
    return list(found.values())


def _query_differences(part: DatasetStudy, systems: Mapping[str, SystemStudy], measure: str) -> list[QueryDifference]:
    """Hold the last system against the best of the others."""
    *others, primary = systems
    if not others:
        return []
    return query_differences(
        {name: system.values[measure] for name, system in systems.items()},
        system=primary,
        baseline=max(others, key=lambda name: float(systems[name].values[measure].nansum())),
        measure=measure,
        query_ids=part.query_ids,
        query_texts=part.query_texts,
        num_relevant=part.num_relevant,
    )


def _breakdowns(parts: Mapping[str, DatasetStudy], names: Renamed, measure: str) -> Sequence[Breakdown]:
    """Join the runs' means over groups of queries; a group that one run has alone keeps its systems alone."""
    joined: dict[tuple[str, str, int], dict[str, float]] = {}
    for run, part in parts.items():
        for found in part.breakdowns:
            if found.measure == measure:
                means = joined.setdefault((found.by, found.group, found.num_queries), {})
                means |= {names[run][name]: mean for name, mean in found.means.items()}
    return [Breakdown(by, group, count, measure, means) for (by, group, count), means in joined.items()]
