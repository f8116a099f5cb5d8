"""What MLflow kept of a command in a folder."""

from pathlib import Path
from typing import Any


def mlflow_runs(folder: Path) -> dict[str, Any]:
    """Return the runs of ``<folder>/mlruns`` by name."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"file:{folder}/mlruns")
    experiments = [experiment.experiment_id for experiment in client.search_experiments()]
    return {run.info.run_name: run for run in client.search_runs(experiments)}


def mlflow_files(folder: Path, run: Any) -> set[str]:
    """Return the paths of a run's files."""
    kept = Path(folder, "mlruns", run.info.experiment_id, run.info.run_id, "artifacts")
    return {path.relative_to(kept).as_posix() for path in kept.rglob("*") if path.is_file()}
