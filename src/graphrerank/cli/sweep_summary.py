"""One table and one plot of the runs of a sweep (``train.py -m``), written into its folder when all have ended."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any, ClassVar

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.compose import without_paths
from graphrerank.evaluation.tables import NOTHING, Cell, Table, markdown_table
from graphrerank.evaluation.terminal import print_table
from graphrerank.files import save_figure, write_json, write_text
from graphrerank.models.manifest import MANIFEST

SEED = "seed"  # runs that differ in it alone are one row
OVERRIDES = Path(".hydra", "overrides.yaml")  # in a run's folder
NAMES = ("summary.md", "summary.json", "summary.png")


@dataclass(frozen=True)
class SweepRun:
    """A finished run of a sweep."""

    folder: Path
    settings: Mapping[str, str]  # of its command, by key
    validation: str | None  # the measure by which its epoch was chosen; None without validation
    highest: bool  # whether the highest score is the best
    scores: Mapping[str, float]  # `validation` first, then what it was judged by


@dataclass(frozen=True)
class SweepRow:
    """The runs of a sweep that differ in the seed alone."""

    name: str  # the settings in which it differs from other rows
    runs: Sequence[SweepRun]

    def scores(self, measure: str) -> list[float]:
        """List the runs' scores by a measure."""
        return [run.scores[measure] for run in self.runs if measure in run.scores]

    def cell(self, measure: str, *, best: bool = False) -> Cell:
        """Show the mean and the standard deviation of a sample."""
        if not (scores := self.scores(measure)):
            return Cell(NOTHING)
        spread = f" ± {stdev(scores):.4f}" if len(scores) > 1 else ""
        return Cell(f"{mean(scores):.4f}{spread}", mean(scores), best=best)


class SweepSummary(Callback):
    """Summarise a sweep; Hydra does not call the end of one in which a run failed, :func:`summarise_failed` does."""

    running: ClassVar[Path | None] = None  # folder of a sweep that has not ended

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Remember the sweep's folder."""
        SweepSummary.running = Path(config.hydra.sweep.dir)

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Write ``summary.md``, ``.json`` and ``.png``, and print the table."""
        SweepSummary.running = None
        summarise(Path(config.hydra.sweep.dir))


def summarise_failed() -> None:
    """Summarise the finished runs of a sweep that an error ended, if there was a sweep."""
    folder, SweepSummary.running = SweepSummary.running, None
    if folder is not None and folder.is_dir():
        summarise(folder)


def summarise(folder: Path) -> None:
    """Write and print the summary of a sweep's folder; without a finished run there is none."""
    folders = [path for path in sorted(folder.iterdir(), key=_number) if (path / OVERRIDES).is_file()]
    runs = [run for path in folders if (run := read_run(path)) is not None]
    if not runs:
        return
    unfinished = sorted({path.name for path in folders} - {run.folder.name for run in runs})
    rows = sweep_rows(runs)
    validation, highest = runs[0].validation, runs[0].highest
    best = best_row(rows)
    measures = list(dict.fromkeys(measure for run in runs for measure in run.scores))
    header = ["settings", "runs", *measures]
    cells = []
    for row in rows:
        scores = [row.cell(measure, best=row is best and measure == validation) for measure in measures]
        cells.append([Cell(row.name), Cell(str(len(row.runs))), *scores])
    lines = ["Mean and standard deviation over seeds."]
    if unfinished:
        lines.append(f"Not finished: {', '.join(unfinished)}")
    if best is not None:
        chosen = (max if highest else min)(best.runs, key=lambda run: run.scores[str(validation)])
        lines.append(f"Best by {validation}: {best.name}; of its runs {chosen.folder}")
    text = markdown_table(header, [[str(cell) for cell in row] for row in cells])
    write_text(folder / NAMES[0], "\n\n".join(["# Sweep", *lines, text, f"![scores]({NAMES[2]})"]) + "\n")
    content = [
        {"name": row.name, "best": row is best, "runs": {run.folder.name: dict(run.scores) for run in row.runs}}
        for row in rows
    ]
    write_json(folder / NAMES[1], {"validation": validation, "rows": content})
    _draw(folder / NAMES[2], rows, validation or measures[0])
    print_table(Table("Sweep", header, cells), title="Sweep", lines=lines)
    print(folder / NAMES[0], flush=True)


def read_run(folder: Path) -> SweepRun | None:
    """Read a run's settings, and what it reached; None if it is no run or has not finished."""
    overrides, config = folder / OVERRIDES, folder / ".hydra" / "config.yaml"
    if not (overrides.is_file() and config.is_file()):
        return None
    manifest = folder / str(OmegaConf.select(OmegaConf.load(config), "system")) / MANIFEST
    content = json.loads(manifest.read_text(encoding="utf-8")) if manifest.is_file() else {}
    if not content.get("finished"):
        return None
    settings = dict(without_paths(str(override)).partition("=")[::2] for override in OmegaConf.load(overrides))
    kept = content.get("validation")
    scores = {} if kept is None else {kept["measure"]: float(kept["score"])}
    for key, measured in content["metrics"].items():
        named = {f"{key} {measure}": score for measure, score in measured.items()} if isinstance(measured, dict) else {}
        scores |= named or {key: measured}
    measure, highest = (None, True) if kept is None else (kept["measure"], kept["mode"] == "max")
    return SweepRun(folder, settings, measure, highest, scores)


def sweep_rows(runs: Sequence[SweepRun]) -> list[SweepRow]:
    """Join runs that differ in the seed alone, in order; each row is named by the settings that not all runs have.

    Example:
        >>> made = [{"seed": seed, "loss": loss, "data": "a"} for loss in ("bce", "ranknet") for seed in "12"]
        >>> rows = sweep_rows([SweepRun(Path(), settings, None, True, {}) for settings in made])
        >>> [(row.name, len(row.runs)) for row in rows]
        [('loss=bce', 2), ('loss=ranknet', 2)]
    """
    keys = dict.fromkeys(key for run in runs for key in run.settings if key != SEED)
    differing = [key for key in keys if len({run.settings.get(key) for run in runs}) > 1]
    joined: dict[str, list[SweepRun]] = {}
    for run in runs:
        name = ", ".join(f"{key}={run.settings[key]}" for key in differing if key in run.settings)
        joined.setdefault(name or "as configured", []).append(run)
    return [SweepRow(name, alike) for name, alike in joined.items()]


def best_row(rows: Sequence[SweepRow]) -> SweepRow | None:
    """Return the row with the best mean on validation; None where runs were not validated, or by different measures."""
    runs = [run for row in rows for run in row.runs]
    measures = {run.validation for run in runs}
    if len(measures) > 1 or (measure := runs[0].validation) is None:
        return None
    return (max if runs[0].highest else min)(rows, key=lambda row: mean(row.scores(measure)))


def _number(folder: Path) -> tuple[int, str]:
    return (int(folder.name) if folder.name.isdigit() else -1, folder.name)


def _draw(path: Path, rows: Sequence[SweepRow], measure: str) -> None:
    """Draw each run as a point, and each row's mean as a line."""
    from matplotlib.figure import Figure  # slow to import

    figure = Figure(figsize=(7, 1.2 + 0.45 * len(rows)), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        scores = row.scores(measure)
        axes.plot(scores, [place] * len(scores), "o", color="#0064a4", alpha=0.6)
        if scores:
            axes.plot([mean(scores)] * 2, [place - 0.3, place + 0.3], color="#1b1f24")
    axes.set_yticks(range(len(rows)), [row.name for row in rows], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel(measure)
    axes.grid(alpha=0.3, axis="x")
    save_figure(path, figure)
