"""A separate run folder for every command, claimed before Hydra writes its first file into it."""

import json
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, read_write

from graphrerank.cli.joint_training import folder_is_named
from graphrerank.utils.files import claim_folder, remove_leftovers
from graphrerank.utils.processes import is_first_process

LEFT_DEPTH = 2  # a run folder, and the folder of a model in it


class ClaimRunFolder(Callback):
    """Give two commands that start in the same second two folders: the later one gets a number after its name.

    A folder that the command line names (``hydra.run.dir=DIR``), or in which a job goes on (``goes_on``), is taken as
    it is; in that of a sweep each run has a folder by its number.
    """

    def __init__(self, *, goes_on: bool = False) -> None:
        self._goes_on = goes_on

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        """Claim ``hydra.run.dir``."""
        if not self._goes_on:
            _claim(config, "run")

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Claim ``hydra.sweep.dir``."""
        _claim(config, "sweep")


def _claim(config: DictConfig, kind: str) -> None:
    key = f"hydra.{kind}.dir"
    if folder_is_named(config.hydra, kind) or ("trainer" in config and not is_first_process()):
        return
    wanted = Path(str(OmegaConf.select(config, key)))
    remove_leftovers(wanted.parent, depth=LEFT_DEPTH)  # of earlier runs that were killed
    claimed = claim_folder(wanted)
    with read_write(config.hydra):
        OmegaConf.update(config, key, str(claimed))


class SweepTable(Callback):
    """Print the validation score of each model of a sweep, the best first, when all runs have ended."""

    def on_multirun_end(self, config: DictConfig, **_: Any) -> None:
        """Read the manifests of the runs; models that did not finish, or were not validated, are left out."""
        from graphrerank.models.manifest import MANIFEST  # imports torch, which errors in arguments should not wait for

        rows = []
        for path in sorted(Path(str(config.hydra.sweep.dir)).glob(f"*/*/{MANIFEST}")):
            content = json.loads(path.read_text(encoding="utf-8"))
            if content.get("finished") and (kept := content.get("validation")) is not None:
                run, model = path.parts[-3:-1]
                overrides = OmegaConf.load(path.parents[1] / ".hydra" / "overrides.yaml")
                order = -kept["score"] if kept["mode"] == "max" else kept["score"]
                rows.append((order, f"{kept['measure']} {kept['score']:.4f}  {run}/{model}  {' '.join(overrides)}"))
        for _order, line in sorted(rows):
            print(line, flush=True)
