"""``logger=wandb`` and ``logger=mlflow`` in commands: W&B itself, offline, and MLflow itself, with a folder."""

import inspect
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphrerank.cli import tracking
from graphrerank.cli.tracking import Tracking
from tests.support.folders import write_dataset
from tests.support.tracking import mlflow_files, mlflow_runs

BLOCK, FULL, LAST = 1 << 15, 1, 4  # of a log: bytes of a block, records that are whole, last parts

pytestmark = pytest.mark.slow  # W&B starts a process


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight passages in a ring, and a question of each in one of three splits."""
    words = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet"]
    asked = [{"_id": f"q{i}", "text": f"What is a {word}?"} for i, word in enumerate(words)]
    return write_dataset(
        tmp_path_factory.mktemp("data") / "ring",
        corpus=[{"_id": f"p{i}", "title": word, "text": f"A text about {word}."} for i, word in enumerate(words)],
        queries=asked,
        edges=[(f"p{i}", f"p{(i + 1) % 8}", "next") for i in range(8)],
        train=[(f"q{i}", f"p{i}") for i in range(4)],
        val=[(f"q{i}", f"p{i}") for i in range(4, 6)],
        test=[(f"q{i}", f"p{i}") for i in range(6, 8)],
    )


@pytest.fixture(scope="module")
def runs(data: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training, the same resumed for an epoch more, and an evaluation of it, with both loggers."""
    pytest.importorskip("wandb", reason="wandb is optional")
    pytest.importorskip("mlflow", reason="mlflow is optional")
    folder = tmp_path_factory.mktemp("runs")
    both = ("logger=[wandb,mlflow]", f"paths.runs={folder}")
    job = ("data=folder", f"data.path={data}", "retriever=bm25", "retriever.top_k=8", "features=scores", "encoder=none")
    train = (*job, *both, "~ablations.mlp", "batches.batch_size=2")
    for arguments in (
        ("train.py", *train, "trainer.max_epochs=1", f"hydra.run.dir={folder}/train"),
        ("train.py", *train, "trainer.max_epochs=2", f"ckpt_path={folder}/train", f"hydra.run.dir={folder}/resumed"),
        ("evaluate.py", f"datasets=[{data}]", f"checkpoint={folder}/train", *both, f"hydra.run.dir={folder}/judge"),
    ):
        run_command(*arguments, pictures=True)
    return folder


def records(folder: Path) -> Iterator[Any]:
    """Read what W&B wrote down offline for one run: a log of LevelDB's form, of W&B's messages."""
    from wandb.proto import wandb_internal_pb2

    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        content, at, parts = file.read_bytes(), 7, b""  # after W&B's own header
        while at + 7 <= len(content):
            left = BLOCK - at % BLOCK
            if left < 7:  # no room for a header: the block ends in zeros
                at += left
                continue
            length, kind = struct.unpack("<4xHB", content[at : at + 7])
            parts += content[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (FULL, LAST):
                yield wandb_internal_pb2.Record.FromString(parts)
                parts = b""


def artifacts(folder: Path) -> dict[str, Any]:
    """Return the artifacts that a run of W&B wrote, by name."""
    found = [record.artifact for record in records(folder) if record.WhichOneof("record_type") == "artifact"]
    return {artifact.name: artifact for artifact in found}


def config(folder: Path) -> dict[str, Any]:
    """Return the last configuration of a run of W&B."""
    updates = [item for record in records(folder) if record.HasField("config") for item in record.config.update]
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in updates}


def logged(folder: Path) -> dict[str, Any]:
    """Return the last value of every key of a run's history."""
    entries: dict[str, Any] = {}
    for record in records(folder):
        for item in record.history.item:
            entries[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    return entries


def test_wandb_has_curves_numbers_and_plots_of_a_training(runs: Path) -> None:
    metrics = json.loads((runs / "train" / "metrics.json").read_text())
    history = logged(runs / "train" / "gatv2")
    assert {"val/ndcg@10", "train/loss_epoch"} <= set(history)
    assert history["ring/gatv2/ndcg@10"] == metrics["datasets"]["ring"]["systems"]["gatv2"]["nDCG@10"]
    assert history["plots/curves/_type"] == "images/separated"


def test_a_resumed_training_goes_on_with_its_runs(runs: Path) -> None:
    folder = runs / "train" / "gatv2"
    ids = json.loads((folder / "tracking.json").read_text())
    assert {record.run.run_id for record in records(folder) if record.HasField("run")} == {ids["wandb"]}
    assert len(list(folder.glob("wandb/offline-run-*"))) == 2
    run = mlflow_runs(runs)["gatv2"]
    assert run.info.run_id == ids["mlflow"]
    assert run.info.status == "FINISHED"
    assert run.data.params["config/trainer/max_epochs"] == "1"
    kept = Path(runs, "mlruns", run.info.experiment_id, run.info.run_id, "artifacts", "settings.json")
    assert json.loads(kept.read_text())["config"]["trainer"]["max_epochs"] == 2


def test_an_evaluation_has_the_fingerprints_of_its_training(runs: Path, data: Path) -> None:
    """Offline, where W&B has no public call for inputs."""
    wrote = json.loads(artifacts(runs / "train" / "gatv2")["model-gatv2"].metadata)
    trained, judged = (config(runs / folder)["reads"] for folder in ("train/gatv2", "judge/evaluate"))
    assert judged["model-gatv2"]["fingerprint"] == wrote["fingerprint"]
    assert judged["model-gatv2"]["trained_in"] == json.loads((runs / "train" / "gatv2" / "tracking.json").read_text())
    assert judged["dataset-ring"] == trained["dataset-ring"]
    assert "_log_artifact" not in inspect.getsource(tracking)


def test_mlflow_has_the_same(runs: Path) -> None:
    found = mlflow_runs(runs)
    assert sorted(found) == ["evaluate", "gatv2"]
    judged = found["evaluate"]
    metrics = json.loads((runs / "judge" / "metrics.json").read_text())
    assert judged.data.metrics["ring/gatv2/ndcg10"] == metrics["datasets"]["ring"]["systems"]["gatv2"]["nDCG@10"]
    read = {entry.dataset.name: entry.dataset for entry in judged.inputs.dataset_inputs}
    assert sorted(read) == ["dataset-ring", "model-gatv2"]
    assert json.loads(read["dataset-ring"].profile)["queries"] == {"train": 4, "val": 2, "test": 2}
    kept = mlflow_files(runs, judged)
    assert {"report/judge/report.md", "report/judge/report.html", "settings.json"} <= kept
    assert "plots" in {Path(path).parts[0] for path in kept}
    assert "val/ndcg10" in found["gatv2"].data.metrics
    assert "model/gatv2/checkpoints/best.ckpt" in mlflow_files(runs, found["gatv2"])


def test_a_failed_job_says_so(run_command, data: Path, tmp_path: Path) -> None:
    job = ("data=folder", f"data.path={data}", "retriever=bm25", "features=scores", "encoder=none", "~ablations.mlp")
    fails = ("trainer.max_epochs=1", "+trainer.limit_train_batches=-1", "logger=mlflow", f"paths.runs={tmp_path}")
    run_command("train.py", *job, *fails, f"hydra.run.dir={tmp_path}/run", status=1)
    assert [run.info.status for run in mlflow_runs(tmp_path).values()] == ["FAILED"]


def test_checkpoints_are_found_at_any_depth() -> None:
    tracking = Tracking()
    tracking.reads_checkpoints_of({"rows": [{"checkpoint": "base"}, {"checkpoint": None}], "checkpoint": "none/such"})
    assert [read.label for read in tracking._read] == ["model-base"]
