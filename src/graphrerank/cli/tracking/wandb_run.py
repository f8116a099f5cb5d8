"""Runs of Weights & Biases, online or offline, with curves, summary, tables, images and artifacts."""

import json
import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch.loggers import WandbLogger
from omegaconf import DictConfig

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.base import TrackedRun
from graphrerank.cli.tracking.results import ResultTable

# environment variables that determine the run; `wandb agent` sets them
CHOSEN_BY = ("WANDB_RUN_ID", "WANDB_SWEEP_ID")
# functions of the module `wandb` that refer to its current run; callbacks and models of users may call them
CURRENT = ("config", "summary", "log", "save", "use_artifact", "log_artifact", "define_metric", "alert", "watch")

log = logging.getLogger(__name__)


class WandbRun(TrackedRun):
    """Run of W&B.

    A command that trains several models has one open run per model until its end, because the test measures are only
    known then. ``wandb.run`` and ``wandb.log`` refer to the run that was opened last.

    Args:
        logger: Lightning logger.
        is_shared: Whether the run belongs to the system that was trained before, which finishes the run.
    """

    logger_class = WandbLogger
    extra = "wandb"

    def __init__(self, logger: Any, *, is_shared: bool = False) -> None:
        super().__init__(logger)
        self._is_shared = is_shared

    @classmethod
    def open(cls, settings: DictConfig, *, run_id: str | None, group: str) -> "WandbRun":
        """Start or continue a run.

        If the settings or the environment set the run id, as ``wandb agent`` does, all systems of a command share the
        run.

        Args:
            settings: Settings of the logger, in the form of ``conf/logger``.
            run_id: Id of the run to continue. If None, a new run starts.
            group: Group name that all runs of a command, or of a sweep, have in common.

        Returns:
            The run.
        """
        import wandb

        named = settings.get("id") or os.environ.get("WANDB_RUN_ID")
        if wandb.run is not None and wandb.run.id == named:
            return cls(instantiate(settings, experiment=wandb.run), is_shared=True)
        chosen = None if any(map(os.environ.get, CHOSEN_BY)) else run_id or secrets.token_hex(4)
        # passed explicitly because W&B reads the environment only once per process
        ours = {"id": named or chosen, "group": settings.get("group") or group}
        wandb.run = None  # otherwise Lightning would continue the run of the previous system
        run = cls(instantiate(settings, **ours, reinit=settings.get("reinit") or "create_new"))
        wandb.run = run.logger.experiment
        for name in CURRENT:
            setattr(wandb, name, getattr(run.logger.experiment, name))
        return run

    @property
    def run_id(self) -> str | None:
        """Id of the run."""
        return str(self.logger.experiment.id)

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Add the settings to the run's config.

        Args:
            settings: Settings by name.
        """
        self.logger.log_hyperparams(dict(settings))

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Add the numbers to the run's summary. In the history, each number would be a chart with one point.

        Args:
            numbers: Numbers by log key.
        """
        self.logger.experiment.summary.update(dict(numbers))

    def log_table(self, table: ResultTable) -> None:
        """Log a ``wandb.Table``.

        Args:
            table: Result table.
        """
        import wandb

        content = wandb.Table(list(table.columns), [list(row) for row in table.rows], allow_mixed_types=True)
        self.logger.experiment.log({f"tables/{table.name}": content})

    def log_image(self, name: str, path: Path) -> None:
        """Log a ``wandb.Image``.

        Args:
            name: Name of the plot.
            path: PNG file.
        """
        self.logger.log_image(f"plots/{name}", [str(path)])

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Record an artifact as an input of the run.

        ``Run.use_artifact`` does not work offline, because it waits for a reply of the server. The record that it
        writes can also be written offline; ``wandb sync`` uploads it later.

        Args:
            artifact: Data set or checkpoint.
        """
        run = self.logger.experiment
        if not run.offline:
            run.use_artifact(wandb_artifact(artifact))
            return
        try:
            run._log_artifact(wandb_artifact(artifact), is_user_created=True, use_after_commit=True)
        except (AttributeError, TypeError) as error:
            log.warning(
                "this version of wandb cannot record inputs offline. They are only listed in `reads` of the config: %s",
                error,
            )

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Log an artifact as an output of the run.

        Args:
            artifact: Checkpoint or report.
        """
        self.logger.experiment.log_artifact(wandb_artifact(artifact))

    def close(self, *, failed: bool) -> None:
        """Finish the run, with exit code 1 if the command failed.

        Args:
            failed: Whether the command failed.
        """
        super().close(failed=failed)
        if not self._is_shared:
            self.logger.experiment.finish(exit_code=int(failed))


def wandb_artifact(artifact: TrackedArtifact) -> Any:
    """Return a ``wandb.Artifact``. Artifacts with equal content have equal digests and are one version in W&B.

    Args:
        artifact: Artifact to convert.
    """
    import wandb

    built = wandb.Artifact(artifact.label, type=artifact.kind, metadata=dict(artifact.facts))
    for name, path in artifact.files.items():
        built.add_file(str(path), name=name)
    if not artifact.files:
        with built.new_file(f"{artifact.kind}.json") as stream:
            stream.write(json.dumps(artifact.facts, indent=2, default=str))
    return built
