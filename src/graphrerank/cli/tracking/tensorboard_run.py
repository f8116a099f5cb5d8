"""Runs of TensorBoard: scalars, images, texts, and a row of its table of hyperparameters."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import TensorBoardLogger

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.base import TrackedRun
from graphrerank.cli.tracking.results import ResultTable


class TensorBoardRun(TrackedRun):
    """A folder of event files. TensorBoard has no artifacts: names and fingerprints are kept as texts."""

    logger_class = TensorBoardLogger
    extra = "tensorboard"

    def __init__(self, logger: Any) -> None:
        super().__init__(logger)
        self._settings: Mapping[str, Any] = {}
        self._test: Mapping[str, float] = {}

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Write the settings as a text; a trained system's are also hyperparameters."""
        self._settings = settings
        self._log_json("settings", settings)

    def log_test(self, numbers: Mapping[str, float]) -> None:
        """Keep the test measures, which :meth:`close` writes next to the hyperparameters."""
        self._test = {**self._test, **numbers}

    def log_table(self, table: ResultTable) -> None:
        """Write a table as a text in Markdown."""
        self.logger.experiment.add_text(f"tables/{table.name}", table.markdown)

    def log_image(self, name: str, path: Path) -> None:
        """Write the pixels of a PNG file."""
        from matplotlib.image import imread

        self.logger.experiment.add_image(f"plots/{name}", imread(path)[..., :3], dataformats="HWC")

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Write the facts as a text."""
        self._log_json(f"inputs/{artifact.label}", artifact.facts)

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Write the facts and the names of the files as a text."""
        self._log_json(f"outputs/{artifact.label}", {**artifact.facts, "files": list(artifact.files)})

    def close(self, *, failed: bool) -> None:
        """Write hyperparameters and test measures, which TensorBoard takes once for each run, and close the files."""
        if self._test:
            self.logger.log_hyperparams(dict(self._settings), dict(self._test))
        super().close(failed=failed)

    def _log_json(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=2, default=str)
        self.logger.experiment.add_text(name, f"```json\n{text}\n```")
