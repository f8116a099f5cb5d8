"""Runs of MLflow, which are stored in a folder, in a database or on a server."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch.loggers import MLFlowLogger
from omegaconf import DictConfig

from graphrerank.cli.tracking.artifacts import TrackedArtifact
from graphrerank.cli.tracking.base import TrackedRun
from graphrerank.cli.tracking.results import ResultTable
from graphrerank.utils.processes import is_first_process

# defaults of environment variables: disable usage reports, and allow a folder as the store
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
MAX_METRICS = 1000  # maximum number of metrics per request
LOGGED_TABLES = "mlflow.loggedArtifacts"  # tag in which MLflow's user interface looks up tables


class ResumableMLFlowLogger(MLFlowLogger):
    """Lightning's MLflow logger with support for continuing a run with changed settings, such as more epochs.

    MLflow does not allow the parameters of a run to change, so those of the first command remain.
    """

    def log_hyperparams(self, params: Any) -> None:
        """Log parameters unless the run already has parameters.

        Args:
            params: Parameters by name.
        """
        if is_first_process() and not self.experiment.get_run(self.run_id).data.params:
            super().log_hyperparams(params)


class MLflowRun(TrackedRun):
    """A run of MLflow."""

    logger_class = MLFlowLogger
    extra = "mlflow"

    @classmethod
    def open(cls, settings: DictConfig, *, run_id: str | None, group: str) -> "MLflowRun":
        """Start or continue a run, with the group as the tag ``group``.

        Args:
            settings: Settings of the logger, in the form of ``conf/logger``.
            run_id: Id of the run to continue. If None, a new run starts.
            group: Group name that all runs of a command, or of a sweep, have in common.

        Returns:
            The run.
        """
        for variable, setting in ENVIRONMENT.items():
            os.environ.setdefault(variable, setting)
        tags = {"group": group, **(settings.tags or {})}
        return cls(instantiate(settings, run_id=settings.get("run_id") or run_id, tags=tags))

    @property
    def run_id(self) -> str | None:
        """Id of the run."""
        return str(self.logger.run_id)

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log parameters unless the run already has parameters, and replace ``settings.json``.

        Args:
            settings: Settings by name.
        """
        self.logger.log_hyperparams(dict(settings))
        self._log_json(settings, "settings.json")

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Log the numbers as metrics, in batches of at most :data:`MAX_METRICS`.

        Args:
            numbers: Numbers by log key.
        """
        names = list(numbers)
        for start in range(0, len(names), MAX_METRICS):
            self.logger.log_metrics({name: numbers[name] for name in names[start : start + MAX_METRICS]})

    def log_table(self, table: ResultTable) -> None:
        """Log a table in the format of ``MlflowClient.log_table``, which would need pandas.

        Args:
            table: Result table.
        """
        name = re.sub(r"[^\w.,@ -]+", "-", table.name)
        file = f"tables/{name}.json"
        self._log_json({"columns": list(table.columns), "data": [list(row) for row in table.rows]}, file)
        client, run_id = self.logger.experiment, self.logger.run_id
        logged = json.loads(client.get_run(run_id).data.tags.get(LOGGED_TABLES, "[]"))
        entry = {"path": file, "type": "table"}
        if entry not in logged:
            client.set_tag(run_id, LOGGED_TABLES, json.dumps([*logged, entry]))

    def log_image(self, name: str, path: Path) -> None:
        """Log an image to the folder ``plots``.

        Args:
            name: Name of the plot.
            path: PNG file.
        """
        self.logger.experiment.log_artifact(self.logger.run_id, str(path), "plots")

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Log a data set or a checkpoint as a dataset input, because MLflow has no other kind of input.

        Args:
            artifact: Data set or checkpoint.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        content = {"source": _json({"name": artifact.name}), "profile": _json(artifact.facts)}
        digest = str(artifact.facts["fingerprint"])[:32]
        dataset = Dataset(artifact.label, digest, source_type=artifact.kind, **content)
        tags = [InputTag("mlflow.data.context", artifact.kind)]
        self.logger.experiment.log_inputs(self.logger.run_id, datasets=[DatasetInput(dataset, tags)])

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Log the files to the folder ``<kind>/<name>`` of the artifact, and the fingerprint as a tag.

        Args:
            artifact: Checkpoint or report.
        """
        client, run_id = self.logger.experiment, self.logger.run_id
        for name, path in artifact.files.items():
            client.log_artifact(run_id, str(path), str(Path(artifact.kind, artifact.name, name).parent))
        client.set_tag(run_id, artifact.label, artifact.facts["fingerprint"])

    def _log_json(self, content: Mapping[str, Any], file: str) -> None:
        self.logger.experiment.log_text(self.logger.run_id, _json(content), file)


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, default=str)
