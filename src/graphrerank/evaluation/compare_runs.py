"""Finished runs side by side, from the files that they wrote: nothing is ranked again."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from graphrerank.evaluation.across import across_datasets
from graphrerank.evaluation.build_study import with_comparisons
from graphrerank.evaluation.measuring import parse_measures
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy
from graphrerank.evaluation.study_plan import StudyPlan

Renamed = Mapping[str, Mapping[str, str]]  # run -> name of a system in it -> name in the comparison


def compare_runs(
    studies: Mapping[str, Study],
    *,
    command: str,
    tested: Sequence[str] = (),
    notes: Sequence[str] = (),
    resamples: int = 10_000,
    seed: int = 0,
) -> Study:
    """Put the systems of several runs into one study, over the data sets that all of them judged.

    Two systems of one name are one where they scored every query alike; else the run's name is added to each. The last
    system of the last run is the primary one, and tests are made anew, of ``tested`` (empty: what the first run tested
    and every run measured); findings of single systems are taken over. The notes of a data set say how the runs differ:
    their commands, and their candidates.
    """
    if len(studies) < 2:
        raise ValueError(f"`report` must name two runs or more, got {list(studies)}")
    first, *others = studies.values()
    shared = [name for name in first.datasets if all(name in other.datasets for other in others)]
    if not shared:
        judged = {run: list(study.datasets) for run, study in studies.items()}
        raise ValueError(f"`report` must name runs over one data set at least, got {judged}")
    datasets = {
        name: _compare_dataset({run: study.datasets[name] for run, study in studies.items()}, tested, resamples, seed)
        for name in shared
    }
    runs = [*(f"{run}: {study.command}" for run, study in studies.items()), *notes]
    datasets = {
        name: replace(dataset, notes=(*runs, *dataset.notes, *_of_own_runs(dataset)))
        for name, dataset in datasets.items()
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


def _compare_dataset(
    parts: Mapping[str, DatasetStudy], tested: Sequence[str], resamples: int, seed: int
) -> DatasetStudy:
    _check_same_queries(parts)
    query_ids = next(iter(parts.values())).query_ids
    parts = {run: _in_order(part, query_ids) for run, part in parts.items()}
    measures = _shared_measures(parts)
    tested = _shared_tests(parts, measures, tested)
    names = _names(parts)
    systems: dict[str, SystemStudy] = {}
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
        replace(last, systems=systems, tested=tuple(tested), browser=None, edges_of_type=(), **single),
        parts,
    )
    return with_comparisons(merged, StudyPlan(measures=measures, tested=tested, resamples=resamples, seed=seed))


def _with_candidates(merged: DatasetStudy, parts: Mapping[str, DatasetStudy]) -> DatasetStudy:
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


def _of_own_runs(dataset: DatasetStudy) -> list[str]:
    """Note that times were not measured side by side."""
    timed = sum(system.cost is not None for system in dataset.systems.values())
    return ["times and memory of a system are those of its own run"] if timed > 1 else []


def _in_order(part: DatasetStudy, query_ids: Sequence[str]) -> DatasetStudy:
    """Put the queries of a study into another order."""
    if part.query_ids == query_ids:
        return part
    row = {query_id: number for number, query_id in enumerate(part.query_ids)}
    rows = torch.tensor([row[query_id] for query_id in query_ids])
    lists: dict[str, Any] = {
        key: tuple(getattr(part, key)[number] for number in rows.tolist())
        for key in ("query_texts", "num_relevant", "densities")
        if getattr(part, key)
    }
    systems = {
        name: replace(system, values={measure: row[rows] for measure, row in system.values.items()})
        for name, system in part.systems.items()
    }
    return replace(part, query_ids=query_ids, systems=systems, **lists)


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
        if (first.split, first.fingerprint) != (other.split, other.fingerprint):
            raise ValueError(
                f"{run} and {other_run} judge other data under the name of {first.name}: {first.split} "
                f"{first.fingerprint[:12]} and {other.split} {other.fingerprint[:12]}"
            )


def _shared_measures(parts: Mapping[str, DatasetStudy]) -> list[str]:
    first, *others = parts.values()
    return [name for name in first.measures if all(name in other.measures for other in others)]


def _shared_tests(parts: Mapping[str, DatasetStudy], measures: Sequence[str], asked: Sequence[str]) -> list[str]:
    """Choose what is tested: what was asked for, else what the first run tested, of the measures of all runs."""
    first = next(iter(parts.values()))
    if asked:
        names = list(parse_measures(asked))
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
    """Return whether two systems score every query the same in each measure that both have."""
    return all(
        torch.equal(values.nan_to_num(-1), b.values[measure].nan_to_num(-1))
        for measure, values in a.values.items()
        if measure in b.values
    )


def _taken_over(parts: Mapping[str, DatasetStudy], names: Renamed, key: str) -> list[Any]:
    """Collect the findings about single systems, each system once."""
    records: dict[tuple[str, ...], Any] = {}
    for run, part in parts.items():
        for record in getattr(part, key):
            name = names[run][record.system]
            facts = [str(getattr(record, field, "")) for field in ("edges", "measure")]
            records.setdefault((name, *facts), replace(record, system=name))
    return list(records.values())
