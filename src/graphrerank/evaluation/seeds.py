"""Aggregate training runs over their seeds: means, standard deviations, and differences that the seeds explain."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import torch

from graphrerank.config.compose import flatten_settings
from graphrerank.evaluation.records import to_plain
from graphrerank.evaluation.report import bullets, markdown
from graphrerank.evaluation.significance import holm
from graphrerank.evaluation.tables import Cell, Table, print_table, row_name
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import write_json, write_text
from graphrerank.utils.safe_loading import read_json

LEVEL = 0.05  # significance level of the comparisons
TEST_MEASURES = ("nDCG@10", "PR@10")  # measures on the test split, unless the caller names others
OVERRIDES = Path(".hydra", "overrides.yaml")  # file of a run folder with the settings of the command line
# settings that do not change what is trained
IRRELEVANT = ("logger", "num_threads", "device", "system", "ckpt_path", "hydra", "paths", "scorers", "test_split")
SEED = "seed"
# entries of a manifest that describe what is trained
TRAINED = ("model", "features", "retriever", "encoder", "data", "mix", "start", "teacher", "optimizer", "scheduler")


@dataclass(frozen=True)
class TrainedRun:
    """Finished training run of one model.

    Attributes:
        folder: Folder of the model.
        system: Name of the model.
        seed: Seed of the training.
        settings: Recorded settings that determine the training, with dotted keys and without the seed.
        overrides: Settings of the command line, without the seed. Empty for a training run in Python.
        mode: ``max`` or ``min``: whether a higher or a lower validation score is better.
        scores: Validation score of the best epoch, and means on test splits, by name of the measure.
    """

    folder: Path
    system: str
    seed: int | None
    settings: Mapping[str, str]
    overrides: tuple[str, ...]
    mode: str
    scores: Mapping[str, float]


@dataclass(frozen=True)
class SeedGroup:
    """Training runs that differ only in their seeds.

    Attributes:
        name: Settings that distinguish the group from the others, as on the command line.
        system: Name of the model.
        seeds: Seed of each run.
        folders: Folder of each model.
        scores: Scores of each run by name of the measure.
    """

    name: str
    system: str
    seeds: tuple[int | None, ...]
    folders: tuple[str, ...]
    scores: Mapping[str, tuple[float, ...]]

    def mean(self, measure: str) -> float:
        """Return the mean of a measure over the seeds, or NaN if a run does not have the measure.

        Args:
            measure: Name of the measure.
        """
        return fmean(self.scores[measure]) if measure in self.scores else math.nan

    def deviation(self, measure: str) -> float:
        """Return the standard deviation of a measure over the seeds, or NaN for a single run.

        Args:
            measure: Name of the measure.
        """
        scores = self.scores.get(measure, ())
        return stdev(scores) if len(scores) > 1 else math.nan


@dataclass(frozen=True)
class SeedComparison:
    """Difference between the best group and another one, compared with its standard error over the seeds.

    Attributes:
        group: Name of the other group.
        system: Model of the other group.
        measure: Name of the measure.
        difference: Mean of the best group minus mean of the other group.
        standard_error: Standard error of the difference over the seeds. NaN if a group has a single run.
        p_value: p-value of Welch's t-test, corrected for the number of comparisons (Holm). NaN if a group has a single
            run.
    """

    group: str
    system: str
    measure: str
    difference: float
    standard_error: float
    p_value: float

    @property
    def verdict(self) -> str:
        """Whether the seeds explain the difference."""
        if math.isnan(self.p_value):
            return "one seed cannot tell"
        return "larger than the seeds explain" if self.p_value < LEVEL else "the seeds explain it"


@dataclass(frozen=True)
class SeedReport:
    """Groups of training runs, best first, and comparisons of the best group with the others.

    Attributes:
        groups: Groups in the order of their mean validation scores.
        validation: Name of the validation measure.
        measures: Names of the measures on test splits.
        comparisons: Comparisons by group and measure.
    """

    groups: Sequence[SeedGroup]
    validation: str
    measures: Sequence[str]
    comparisons: Sequence[SeedComparison] = field(default=())

    @property
    def columns(self) -> list[str]:
        """Names of all measures, validation first."""
        return [self.validation, *self.measures]

    def tables(self) -> list[Table]:
        """Return the table of the groups and the table of the comparisons."""
        header = ["system", "settings", "seeds", *self.columns]
        rows = [
            [
                Cell(row_name(group.system)),
                Cell(group.name or "-", prose=True),
                Cell(str(len(group.seeds)), len(group.seeds)),
                *(_spread_cell(group, name) for name in self.columns),
            ]
            for group in self.groups
        ]
        best = self.groups[0]
        means = Table(
            "Means over seeds",
            header,
            rows,
            "Mean ± standard deviation over the seeds, best validation mean first. Percent, except losses.",
            text_columns=2,
        )
        differences = Table(
            f"{row_name(best.system)} {best.name or 'with the same settings'} against the others",
            ["system", "settings", "measure", "difference", "standard error", "p (Holm)", "verdict"],
            [
                [
                    Cell(row_name(test.system)),
                    Cell(test.group or "-", prose=True),
                    Cell(test.measure),
                    _number(test.difference, test.measure, signed=True),
                    _number(test.standard_error, test.measure),
                    Cell("-" if math.isnan(test.p_value) else f"{test.p_value:.3f}", test.p_value),
                    Cell(test.verdict),
                ]
                for test in self.comparisons
            ],
            "Welch's t-test over the seeds. It measures the variation between trainings, not between queries.",
            text_columns=3,
        )
        return [means, differences] if self.comparisons else [means]

    def show(self) -> None:
        """Print the tables."""
        for table in self.tables():
            print_table(table, title=table.title, lines=[table.caption])

    def save(self, folder: str | Path) -> Path:
        """Write ``report.md`` and ``seeds.json``.

        Args:
            folder: Folder to write to.

        Returns:
            Path of the folder.
        """
        folder = Path(folder)
        runs = [f"{path}" for group in self.groups for path in group.folders]
        parts = [f"## {table.title}\n\n{markdown(table)}\n\n{table.caption}" for table in self.tables()]
        write_text(folder / "report.md", "\n\n".join(["# Runs over seeds", *parts, "## Runs", bullets(runs)]) + "\n")
        groups = [
            {
                **to_plain(group),
                "mean": {name: _finite(group.mean(name)) for name in self.columns},
                "std": {name: _finite(group.deviation(name)) for name in self.columns},
            }
            for group in self.groups
        ]
        comparisons = [
            {
                "group": test.group,
                "system": test.system,
                "measure": test.measure,
                "difference": _finite(test.difference),
                "standard_error": _finite(test.standard_error),
                "p_value": _finite(test.p_value),
                "verdict": test.verdict,
            }
            for test in self.comparisons
        ]
        write_json(folder / "seeds.json", {"groups": groups, "comparisons": comparisons})
        return folder


def aggregate_runs(runs: Iterable[str | Path], *, measures: Sequence[str] = TEST_MEASURES) -> SeedReport:
    """Group finished training runs that differ only in their seeds, and compare the groups.

    Args:
        runs: Run folders of ``train`` or ``fit``, folders of sweeps, folders of single models, and patterns such as
            ``runs/train/2026-11-*``.
        measures: Measures on test splits to aggregate. Runs without a test have only the validation score.

    Returns:
        Groups with means and standard deviations on validation and test, best first, and comparisons.

    Raises:
        ValueError: If a path has no finished training run, or the runs have no validation measure in common.

    Example:
        >>> aggregate_runs(["runs/multirun/2026-11-28_12-00-00"]).show()  # doctest: +SKIP
    """
    trained = [run for folder in model_folders(runs) if (run := read_trained_run(folder, measures)) is not None]
    if not trained:
        raise UserError("`runs` must have at least one finished training run with a validation score, got none")
    validation = common_validation(trained)
    groups = group_runs([run for run in trained if validation in run.scores])
    sign = -1.0 if trained[0].mode == "max" else 1.0
    groups.sort(key=lambda group: sign * group.mean(validation))
    tests = [name for name in dict.fromkeys(name for group in groups for name in group.scores) if name != validation]
    return SeedReport(groups, validation, tests, compare_groups(groups, [validation, *tests]))


def model_folders(runs: Iterable[str | Path]) -> list[Path]:
    """Return the folders of all models of runs and sweeps.

    Args:
        runs: Folders of runs, sweeps or models, and patterns with ``*``, ``?`` or ``[...]``.

    Returns:
        Folders with a manifest, each once.

    Raises:
        ValueError: If a path or pattern has no model.
    """
    folders: dict[Path, None] = {}
    for run in map(str, runs):
        levels = (MANIFEST, f"*/{MANIFEST}", f"*/*/{MANIFEST}")  # a model, a run, a sweep
        manifests = [file for path in matching_paths(run) for level in levels for file in sorted(path.glob(level))]
        if not manifests:
            raise UserError(f"`runs` must be folders of training runs, which have <system>/{MANIFEST}, got {run!r}")
        folders.update(dict.fromkeys(file.parent.resolve() for file in manifests))
    return list(folders)


def matching_paths(run: str) -> list[Path]:
    """Return the paths that a pattern matches, or the path itself if it exists.

    Args:
        run: Path, or pattern with ``*``, ``?`` or ``[...]``.

    Returns:
        Sorted paths. Empty if nothing exists.
    """
    path = Path(run)
    root = Path(path.anchor)
    return [path] if path.exists() else sorted(root.glob(str(path.relative_to(root))))


def read_trained_run(folder: Path, measures: Sequence[str] = TEST_MEASURES) -> TrainedRun | None:
    """Read the settings and scores of a trained model.

    Args:
        folder: Folder of the model.
        measures: Measures on test splits to read.

    Returns:
        The run. None if the training is unfinished or was not validated.
    """
    content = read_json(folder / MANIFEST)
    if not content.get("finished") or content.get("validation") is None:
        return None
    validation = content["validation"]
    scores = {validation["measure"]: float(validation["score"])}
    for split, means in content.get("metrics", {}).items():
        if isinstance(means, Mapping):
            scores |= {f"{split} {name}": float(means[name]) for name in measures if means.get(name) is not None}
    config = content.get("config", {})
    entries = {key: content.get(key) for key in TRAINED}
    flat = {key: str(setting) for key, setting in flatten_settings({**config, "trained": entries})}
    settings = {key: flat[key] for key in sorted(flat) if key.split(".")[0] not in IRRELEVANT and key != SEED}
    return TrainedRun(
        folder=folder,
        system=str(content["name"]),
        seed=config.get(SEED),
        settings=settings,
        overrides=read_overrides(folder.parent),
        mode=str(validation["mode"]),
        scores=scores,
    )


def read_overrides(run_dir: Path) -> tuple[str, ...]:
    """Return the settings of a run's command line that determine the training, without the seed.

    Args:
        run_dir: Folder of the run.

    Returns:
        Overrides. Empty if the run has no such file.
    """
    from omegaconf import OmegaConf

    if not (run_dir / OVERRIDES).is_file():
        return ()
    overrides = [str(override) for override in OmegaConf.load(run_dir / OVERRIDES)]
    names = {override: override.lstrip("+~").split("=")[0].split(".")[0] for override in overrides}
    return tuple(override for override in overrides if names[override] not in (SEED, *IRRELEVANT))


def common_validation(runs: Sequence[TrainedRun]) -> str:
    """Return the validation measure that all runs share.

    Args:
        runs: Training runs.

    Raises:
        ValueError: If the runs have different validation measures.
    """
    names = dict.fromkeys(next(iter(run.scores)) for run in runs)
    if len(names) > 1:
        raise UserError(f"`runs` must have the same validation measure, got {list(names)}")
    return next(iter(names))


def group_runs(runs: Sequence[TrainedRun]) -> list[SeedGroup]:
    """Group runs of the same system and settings.

    Args:
        runs: Training runs. If a run was repeated with the same seed, only the last one is used.

    Returns:
        Groups, named by the settings that not all runs have.
    """
    grouped: dict[tuple[Any, ...], dict[int | None, TrainedRun]] = {}
    for run in runs:
        grouped.setdefault((run.system, *run.settings.items()), {})[run.seed] = run
    members = [list(by_seed.values()) for by_seed in grouped.values()]
    names = settings_names([group[0] for group in members])
    groups = []
    for name, group in zip(names, members, strict=True):
        measures = [measure for measure in group[0].scores if all(measure in run.scores for run in group)]
        groups.append(
            SeedGroup(
                name=name,
                system=group[0].system,
                seeds=tuple(run.seed for run in group),
                folders=tuple(str(run.folder) for run in group),
                scores={measure: tuple(run.scores[measure] for run in group) for measure in measures},
            )
        )
    return groups


def settings_names(runs: Sequence[TrainedRun]) -> list[str]:
    """Return a name for each group: its settings of the command line that the others do not share.

    Args:
        runs: One run of each group.

    Returns:
        Names. The recorded settings are used if those of the command line do not distinguish the groups.
    """
    shared = set(runs[0].overrides).intersection(*(run.overrides for run in runs))
    names = [" ".join(override for override in run.overrides if override not in shared) for run in runs]
    if len(set(zip(names, (run.system for run in runs), strict=True))) == len(runs):
        return names
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    varied = [key for key in keys if len({run.settings.get(key) for run in runs}) > 1]
    named = [key for key in varied if not key.startswith("trained.")] or varied
    return [" ".join(f"{key.removeprefix('settings.')}={run.settings.get(key)}" for key in named) for run in runs]


def compare_groups(groups: Sequence[SeedGroup], measures: Sequence[str]) -> list[SeedComparison]:
    """Compare the first group with all others by Welch's t-test over the seeds, with Holm's correction per measure.

    Args:
        groups: Groups, best first.
        measures: Measures to compare. A measure that a group does not have is skipped.

    Returns:
        Comparisons by measure and group.
    """
    best, *others = groups
    comparisons = []
    for measure in measures:
        measured = [other for other in others if measure in best.scores and measure in other.scores]
        tests = [welch(best.scores[measure], other.scores[measure]) for other in measured]
        corrected = holm(torch.tensor([test.p_value for test in tests], dtype=torch.float64)).tolist()
        for other, test, p_value in zip(measured, tests, corrected, strict=True):
            difference = best.mean(measure) - other.mean(measure)
            comparisons.append(
                SeedComparison(other.name, other.system, measure, difference, test.standard_error, p_value)
            )
    return comparisons


class WelchTest(NamedTuple):
    """Result of Welch's t-test.

    Attributes:
        standard_error: Standard error of the difference of the means.
        p_value: Two-sided p-value.
    """

    standard_error: float
    p_value: float


def welch(first: Sequence[float], second: Sequence[float]) -> WelchTest:
    """Test a difference of means for unequal variances.

    Source: Welch, "The generalization of 'Student's' problem when several different population variances are involved",
    1947.

    Args:
        first: Scores of one group.
        second: Scores of another group.

    Returns:
        Standard error of the difference and two-sided p-value. NaN if a group has fewer than two scores. If no group
        varies, the p-value is 0 for different means and 1 for equal ones.

    Example:
        >>> error, p_value = welch([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
        >>> f"{error:.3f} {p_value:.4f}"
        '0.816 0.0213'
    """
    if len(first) < 2 or len(second) < 2:
        return WelchTest(math.nan, math.nan)
    from scipy.stats import t as student  # imported here because it is slow

    variances = [stdev(scores) ** 2 / len(scores) for scores in (first, second)]  # of the means
    error = math.sqrt(sum(variances))
    difference = abs(fmean(first) - fmean(second))
    if error == 0:
        return WelchTest(0.0, float(difference == 0))
    degrees_of_freedom = sum(variances) ** 2 / sum(
        variance**2 / (len(scores) - 1) for variance, scores in zip(variances, (first, second), strict=True)
    )
    return WelchTest(error, float(2 * student.sf(difference / error, degrees_of_freedom)))


def _is_share(measure: str) -> bool:
    return not measure.endswith("loss")


def _number(number: float, measure: str, *, signed: bool = False) -> Cell:
    """Return a cell with a score or a difference: in percent, except for losses."""
    if math.isnan(number):
        return Cell("-")
    text = f"{100 * number:.2f}" if _is_share(measure) else f"{number:.4f}"
    return Cell(f"+{text}" if signed and number >= 0 else text, number)


def _spread_cell(group: SeedGroup, measure: str) -> Cell:
    """Return a cell with the mean and the standard deviation of a measure."""
    mean = _number(group.mean(measure), measure)
    deviation = _number(group.deviation(measure), measure)
    return mean if deviation.value is None else Cell(f"{mean.text} ± {deviation.text}", mean.value)


def _finite(number: float) -> float | None:
    return None if math.isnan(number) else number
