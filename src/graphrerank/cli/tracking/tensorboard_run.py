"""Runs of TensorBoard, with scalars, images, texts and hyperparameters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.base import TrackedRun
from graphrerank.cli.tracking.results import ResultTable


class TensorBoardRun(TrackedRun):
    """Run of TensorBoard. Names and fingerprints of artifacts are logged as texts, because it has no artifacts.

    Args:
        logger: Lightning logger.
    """

    logger_class = TensorBoardLogger
    extra = "tensorboard"

    def __init__(self, logger: Any) -> None:
        super().__init__(logger)
        self._settings: Mapping[str, Any] = {}
        self._test: Mapping[str, float] = {}

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log the settings as a text. :meth:`close` also logs the settings of a trained system as hyperparameters.

        Args:
            settings: Settings by name.
        """
        self._settings = settings
        self._log_json("settings", settings)

    def log_test(self, numbers: Mapping[str, float]) -> None:
        """Store the test measures until :meth:`close` logs them with the hyperparameters.

        Args:
            numbers: Means by log key, such as ``test/attack/ndcg@10``.
        """
        self._test = {**self._test, **numbers}

    def log_table(self, table: ResultTable) -> None:
        """Log a table as Markdown text.

        Args:
            table: Result table.
        """
        self.logger.experiment.add_text(f"tables/{table.name}", table.markdown)

    def log_image(self, name: str, path: Path) -> None:
        """Log an image.

        Args:
            name: Name of the plot.
            path: PNG file.
        """
        from matplotlib.image import imread

        self.logger.experiment.add_image(f"plots/{name}", imread(path)[..., :3], dataformats="HWC")

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Log the metadata as a text.

        Args:
            artifact: Data set or checkpoint.
        """
        self._log_json(f"inputs/{artifact.label}", artifact.facts)

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Log the metadata and the names of the files as a text.

        Args:
            artifact: Checkpoint or report.
        """
        self._log_json(f"outputs/{artifact.label}", {**artifact.facts, "files": list(artifact.files)})

    def close(self, *, failed: bool) -> None:
        """Log hyperparameters and test measures, which TensorBoard accepts once per run, and close the files.

        Args:
            failed: Whether the command failed.
        """
        if self._test:
            self.logger.log_hyperparams(dict(self._settings), dict(self._test))
        super().close(failed=failed)

    def _log_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, default=str)
        self.logger.experiment.add_text(name, f"```json\n{text}\n```")
