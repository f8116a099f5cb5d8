"""Hydra callbacks that give each command its own run folder and print the results of a sweep."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.cli.joint_training import folder_is_named
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import claim_folder, remove_leftovers
from graphrerank.utils.processes import is_first_process

RUN_NAME = r"\w[\w.-]*"  # names that are file names on every system
LEFT_DEPTH = 2  # depth of folders with temporary files: a run folder, and the folder of a model in it


class ClaimRunFolder(Callback):
    """Create the run folder before Hydra writes its first file.

    The setting ``name`` replaces the date and time in the name of the folder. If a folder of this name exists, a number
    is appended. A folder that is set on the command line (``hydra.run.dir=DIR``) is used unchanged. In a sweep, the
    folder of the sweep is created; each run has a numbered folder in it.

    Args:
        goes_on: Whether the job or the sweep continues in an existing folder, which is used unchanged.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Create ``hydra.run.dir``.

        Args:
            config: Configuration of the run.
        """
        if not self._goes_on:
            _claim(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Create ``hydra.sweep.dir``.

        Args:
            config: Configuration of the sweep.
        """
        if not self._goes_on:
            _claim(config, "sweep")


def _claim(config: DictConfig, kind: str) -> None:
    key = f"hydra.{kind}.dir"
    if folder_is_named(config.hydra, kind) or ("trainer" in config and not is_first_process()):
        return
    wanted = Path(str(OmegaConf.select(config, key)))
    if (name := config.get("name")) is not None and re.fullmatch(RUN_NAME, str(name)):  # others are refused later
        wanted = wanted.with_name(str(name))
    remove_leftovers(wanted.parent, depth=LEFT_DEPTH)  # temporary files of earlier runs that were killed
    claimed = claim_folder(wanted)
    with read_write(config.hydra):
        OmegaConf.update(config, key, str(claimed))


def check_run_name(name: object) -> None:
    """Check the setting ``name``, which names the run folder.

    Args:
        name: Name of the run, or None.

    Raises:
        ValueError: If the name is not a plain file name.
    """
    if name is not None and not re.fullmatch(RUN_NAME, str(name)):
        raise UserError(
            f"`name` must consist of letters, digits, dots, hyphens and underscores, and begin with a letter, digit or "
            f"underscore, got {name!r}"
        )


def remove_if_empty(hydra: Any) -> None:
    """Remove the run folder of a failed command, if this command created it and wrote nothing but Hydra's files to it.

    Args:
        hydra: Hydra's configuration of the run.
    """
    claims = hydra.callbacks.get("claim_run_folder")
    if hydra.mode != RunMode.RUN or folder_is_named(hydra) or claims is None or claims.get("goes_on"):
        return
    folder = Path(str(hydra.runtime.output_dir))
    hydra_folder = folder / str(hydra.output_subdir)
    if all(path.is_dir() or hydra_folder in path.parents for path in folder.rglob("*")):
        shutil.rmtree(folder, ignore_errors=True)


class SweepTable(Callback):
    """Print the validation scores of all models of a sweep after its last run, and their means over seeds."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Print the table.

        Args:
            config: Configuration of the sweep.
        """
        print_sweep_table(Path(str(config.hydra.sweep.dir)))


def print_sweep_table(folder: Path) -> None:
    """Print the validation scores of the models of a sweep, best first, and the means of runs that vary the seed.

    Models whose training did not finish or was not validated are skipped. The table of means is also written to the
    folder, as ``report.md`` and ``seeds.json``.

    Args:
        folder: Folder of the sweep.
    """
    from graphrerank.models.manifest import MANIFEST  # imports torch, which is slow

    rows = []
    for path in sorted(folder.glob(f"*/*/{MANIFEST}")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if content.get("finished") and (best := content.get("validation")) is not None:
            run, model = path.parts[-3:-1]
            overrides = OmegaConf.load(path.parents[1] / ".hydra" / "overrides.yaml")
            order = -best["score"] if best["mode"] == "max" else best["score"]
            rows.append((order, f"{best['measure']} {best['score']:.4f}  {run}/{model}  {' '.join(overrides)}"))
    for _order, line in sorted(rows):
        print(line, flush=True)
    if rows:
        _print_means(folder)


def _print_means(folder: Path) -> None:
    """Print and write the means over seeds if some settings were trained with several seeds."""
    from graphrerank.evaluation.seeds import aggregate_runs  # imports torch

    report = aggregate_runs([folder])
    if any(len(group.seeds) > 1 for group in report.groups):
        report.save(folder)
        report.show()
