"""Runs of MLflow, in a folder, a database or on a server."""

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

# unless the user sets them: no usage reports, and a folder is a store, for which MLflow asks
ENVIRONMENT = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_ALLOW_FILE_STORE": "true"}
MAX_METRICS = 1000  # in one request
LOGGED_TABLES = "mlflow.loggedArtifacts"  # tag by which MLflow's page finds tables


class ResumableMLFlowLogger(MLFlowLogger):
    """Lightning's logger, which can also continue a run with other settings, such as more epochs.

    MLflow refuses to change the parameters of a run; the first ones are kept.
    """

    def log_hyperparams(self, params: Any) -> None:
        """Log parameters, unless the run has some."""
        if is_first_process() and not self.experiment.get_run(self.run_id).data.params:
            super().log_hyperparams(params)


class MLflowRun(TrackedRun):
    """A run of MLflow."""

    logger_class = MLFlowLogger
    extra = "mlflow"

    @classmethod
    def open(cls, settings: DictConfig, *, run_id: str | None, group: str) -> "MLflowRun":
        """Begin or continue a run; the tag ``group`` names what the runs of a command share."""
        for variable, setting in ENVIRONMENT.items():
            os.environ.setdefault(variable, setting)
        tags = {"group": group, **(settings.tags or {})}
        return cls(instantiate(settings, run_id=settings.get("run_id") or run_id, tags=tags))

    @property
    def run_id(self) -> str | None:
        """Id of the run."""
        return str(self.logger.run_id)

    def log_settings(self, settings: Mapping[str, Any]) -> None:
        """Log parameters where the run has none yet, and ``settings.json``, which is always the latest."""
        self.logger.log_hyperparams(dict(settings))
        self._log_json(settings, "settings.json")

    def log_numbers(self, numbers: Mapping[str, float]) -> None:
        """Log the numbers as metrics, in batches that MLflow accepts."""
        names = list(numbers)
        for start in range(0, len(names), MAX_METRICS):
            self.logger.log_metrics({name: numbers[name] for name in names[start : start + MAX_METRICS]})

    def log_table(self, table: ResultTable) -> None:
        """Log a table in the form of ``MlflowClient.log_table``, which needs pandas; ``mlflow.load_table`` reads it."""
        name = re.sub(r"[^\w.,@ -]+", "-", table.name)
        file = f"tables/{name}.json"
        self._log_json({"columns": list(table.columns), "data": [list(row) for row in table.rows]}, file)
        client, run_id = self.logger.experiment, self.logger.run_id
        logged = json.loads(client.get_run(run_id).data.tags.get(LOGGED_TABLES, "[]"))
        entry = {"path": file, "type": "table"}
        if entry not in logged:
            client.set_tag(run_id, LOGGED_TABLES, json.dumps([*logged, entry]))

    def log_image(self, name: str, path: Path) -> None:
        """Log a file in ``plots``."""
        self.logger.experiment.log_artifact(self.logger.run_id, str(path), "plots")

    def log_input(self, artifact: TrackedArtifact) -> None:
        """Log a dataset input, with the facts as its profile; checkpoints too, as MLflow has no inputs of files."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        content = {"source": _json({"name": artifact.name}), "profile": _json(artifact.facts)}
        digest = str(artifact.facts["fingerprint"])[:32]
        dataset = Dataset(artifact.label, digest, source_type=artifact.kind, **content)
        tags = [InputTag("mlflow.data.context", artifact.kind)]
        self.logger.experiment.log_inputs(self.logger.run_id, datasets=[DatasetInput(dataset, tags)])

    def log_output(self, artifact: TrackedArtifact) -> None:
        """Log the files in a folder of the artifact's kind and name, and its fingerprint as a tag."""
        client, run_id = self.logger.experiment, self.logger.run_id
        for name, path in artifact.files.items():
            client.log_artifact(run_id, str(path), str(Path(artifact.kind, artifact.name, name).parent))
        client.set_tag(run_id, artifact.label, artifact.facts["fingerprint"])

    def _log_json(self, content: Mapping[str, Any], file: str) -> None:
        self.logger.experiment.log_text(self.logger.run_id, _json(content), file)


def _json(content: Any) -> str:
    return json.dumps(content, indent=2, default=str)
