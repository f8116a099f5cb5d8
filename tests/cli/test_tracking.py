"""``logger=`` of commands: W&B itself, offline, MLflow itself, with a folder, and TensorBoard's event files."""

import csv
import json
import math
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger
from matplotlib.image import imread

from graphrerank import Dataset, fit
from graphrerank.cli.tracking import Tracking
from graphrerank.models.manifest import write_manifest
from tests.support.commands import manifest_of
from tests.support.folders import write_dataset
from tests.support.tracking import (
    OfflineRun,
    mlflow_curve,
    mlflow_files,
    mlflow_folder,
    mlflow_runs,
    tensorboard_events,
)

wandb = pytest.importorskip("wandb", reason="wandb is optional")
pytestmark = pytest.mark.slow  # W&B starts a process

STEPS, EPOCHS = 2, 2  # 4 training queries in batches of two
MEASURES = {"pr@5", "pr@10", "r@2", "r@5", "r@10", "ndcg@10"}  # of a test that no query with several passages is in
SYSTEMS = ["retriever", "ppr", "gcs", "mlp", "gatv2"]


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
def job(data: Path) -> tuple[str, ...]:
    """Settings of a small training."""
    parts = ("retriever=bm25", "retriever.top_k=8", "features=scores", "encoder=none", "batches.batch_size=2")
    return ("data=folder", f"data.path={data}", *parts)


@pytest.fixture(scope="module")
def runs(data: Path, job: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training with its ablation, an evaluation and a calibration of it, with all loggers."""
    for package in ("wandb", "mlflow", "tensorboard"):
        pytest.importorskip(package, reason=f"{package} is optional")
    folder = tmp_path_factory.mktemp("runs")
    loggers = ("logger=[csv,mlflow,tensorboard,wandb]", f"paths.runs={folder}")
    train = (f"trainer.max_epochs={EPOCHS}", "+callbacks.user._target_=tests.support.callbacks.LogsToWandb")
    for arguments in (
        ("train.py", *job, *loggers, *train, f"hydra.run.dir={folder}/train"),
        ("evaluate.py", f"datasets=[{data}]", f"checkpoint={folder}/train", *loggers, f"hydra.run.dir={folder}/judge"),
        ("calibrate", f"checkpoint={folder}/train", *loggers, f"hydra.run.dir={folder}/calibrate"),
    ):
        run_command(*arguments, pictures=True)
    return folder


@pytest.fixture(scope="module")
def resumed(job: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that ended after an epoch as if it was interrupted, and the same resumed for an epoch more."""
    for package in ("wandb", "mlflow"):
        pytest.importorskip(package, reason=f"{package} is optional")
    folder = tmp_path_factory.mktemp("resumed")
    train = ("train.py", *job, "logger=[wandb,mlflow]", f"paths.runs={folder}", "~ablations.mlp")
    run_command(*train, "trainer.max_epochs=1", f"hydra.run.dir={folder}/train", pictures=True)
    write_manifest(folder / "train" / "gatv2", {**manifest_of(folder / "train" / "gatv2"), "finished": False})
    resume = ("trainer.max_epochs=2", f"ckpt_path={folder}/train", f"hydra.run.dir={folder}/again")
    run_command(*train, *resume, pictures=True)
    return folder


@pytest.fixture(scope="module")
def systems(runs: Path) -> dict[str, dict[str, Any]]:
    """The systems of the training's ``metrics.json``."""
    found: dict[str, dict[str, Any]] = json.loads((runs / "train" / "metrics.json").read_text())["datasets"]["ring"]
    return found["systems"]


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_wandb_has_the_curves_of_every_system(runs: Path, system: str) -> None:
    run = OfflineRun(runs / "train" / system)
    by_step = dict.fromkeys(("train/loss_step", "train/lr", "train/grad_norm"), STEPS * EPOCHS)
    by_epoch = dict.fromkeys(("train/loss_epoch", "val/loss", "val/ndcg@10", "val/pr@10", "val/r@10"), EPOCHS)
    assert {key: run.points[key] for key in by_step | by_epoch} == by_step | by_epoch
    assert [step for step, _ in run.curve("train/loss_step")] == list(range(STEPS * EPOCHS))
    cosine = [3e-3 * (1 + math.cos(math.pi * step / 4)) / 2 for step in range(4)]  # without a warm-up in so few steps
    assert [rate for _, rate in run.curve("train/lr")] == pytest.approx(cosine)
    assert all(norm > 0 for _, norm in run.curve("train/grad_norm"))


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_a_callback_of_a_user_logs_to_the_run_of_its_training(runs: Path, system: str) -> None:
    weights = torch.load(runs / "train" / system / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    run = OfflineRun(runs / "train" / system)
    assert run.points["user/parameters"] == 1
    assert run.summary["user/parameters"] == sum(weight.numel() for weight in weights.values())
    assert wandb.run is None  # all are finished


def test_python_has_the_same_curves(data: Path, tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path)
    parts = {"retriever": "bm25", "encoder": None, "features": "scores"}
    fit(Dataset.from_folder(data), **parts, batch_size=2, max_epochs=EPOCHS, logger=logger, run_dir=tmp_path / "run")
    with Path(logger.log_dir, "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for key in ("train/loss_step", "train/lr", "train/grad_norm"):
        assert len([row for row in rows if row[key]]) == STEPS * EPOCHS


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_wandb_has_the_test_measures_of_a_system_in_its_own_run(
    runs: Path, systems: dict[str, dict[str, Any]], system: str
) -> None:
    run = OfflineRun(runs / "train" / system)
    logged = {key: number for row in run.history for key, number in row.items() if key.startswith("test/")}
    expected = {f"test/ring/{key.lower()}": number for key, number in systems[system].items() if "@" in key}
    assert logged == {key: number for key, number in expected.items() if number is not None}
    assert {key.removeprefix("test/ring/") for key in logged} == MEASURES
    assert len(run.files) == 1  # in the run of the training, not in a second one


def test_wandb_has_the_numbers_of_a_job_in_its_summary_alone(runs: Path, systems: dict[str, dict[str, Any]]) -> None:
    for folder in ("train/gatv2", "judge/evaluate"):
        run = OfflineRun(runs / folder)
        key = "ring/gatv2/ndcg@10"
        assert run.summary[key] == systems["gatv2"]["nDCG@10"]
        assert run.points[key] == 0  # no chart of one point for each of hundreds
        assert run.summary["ring/comparisons/gatv2 gcs ndcg@10/p_holm"] == 1
    assert not any(key.startswith("ring/") for key in OfflineRun(runs / "train" / "mlp").summary)


@pytest.mark.parametrize("folder", ["train/gatv2", "judge/evaluate"])
def test_wandb_has_the_comparison_as_a_table(runs: Path, folder: str) -> None:
    metrics = json.loads((runs / folder).parent.joinpath("metrics.json").read_text())["datasets"]["ring"]
    tables = OfflineRun(runs / folder).tables
    assert sorted(name for name in tables if "counterfactuals" not in name) == [
        "tables/ring/comparisons", "tables/ring/systems"
    ]  # fmt: skip
    table = tables["tables/ring/systems"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["system"] for row in rows] == list(metrics["systems"])
    for row in rows:
        entry = metrics["systems"][row["system"]]
        assert (row["nDCG@10"], row["PR@10"]) == (entry["nDCG@10"], entry["PR@10"])
        assert (row["p50 ms"], row["p95 ms"]) == (entry["latency_ms"]["p50"], entry["latency_ms"]["p95"])
        expected = None if row["system"] == "gatv2" else 1
        assert row["p nDCG@10"] == row["p Holm nDCG@10"] == expected
    assert len(tables["tables/ring/comparisons"]["data"]) == len(metrics["comparisons"]) > 0


def test_wandb_has_the_plots_as_they_are(runs: Path) -> None:
    for system, folder in (("gatv2", "train"), ("evaluate", "judge")):
        images = OfflineRun(runs / folder / system).images
        plots = [*(runs / folder).glob("plots/*.png"), *(runs / folder / system).glob("*.png")]
        assert plots
        assert {name: path.read_bytes() for name, path in images.items()} == {
            f"plots/{plot.stem}": plot.read_bytes() for plot in plots
        }
    assert list(OfflineRun(runs / "train" / "mlp").images) == ["plots/curves"]


def test_wandb_joins_an_evaluation_to_its_training(runs: Path) -> None:
    trained, judged = OfflineRun(runs / "train" / "gatv2"), OfflineRun(runs / "judge" / "evaluate")
    tables = {name for name in trained.outputs if name.startswith("run-")}
    assert set(trained.outputs) - tables == {"model-gatv2", "report-train"}
    assert set(trained.inputs) == {"dataset-ring"}
    assert set(OfflineRun(runs / "train" / "mlp").outputs) == {"model-mlp"}
    assert set(judged.inputs) == {"dataset-ring", "model-gatv2", "model-mlp"}  # a run is all its checkpoints
    for name, wrote in (
        ("model-gatv2", trained.outputs["model-gatv2"]),
        ("dataset-ring", trained.inputs["dataset-ring"]),
    ):
        assert judged.inputs[name].digest == wrote.digest  # one version of one artifact
    files = {entry.path for entry in trained.outputs["model-gatv2"].manifest.contents}
    assert files == {"checkpoints/best.ckpt", "manifest.json"}
    report = {entry.path for entry in judged.outputs["report-judge"].manifest.contents}
    assert report == {"report.md", "report.html", "metrics.json"}
    reads = judged.config["reads"]
    assert reads["model-gatv2"]["trained_in"] == json.loads((runs / "train" / "gatv2" / "tracking.json").read_text())
    assert reads["model-gatv2"]["fingerprint"] == json.loads(trained.outputs["model-gatv2"].metadata)["fingerprint"]


def test_a_calibration_has_its_errors_and_its_checkpoint(runs: Path) -> None:
    run = OfflineRun(runs / "calibrate" / "calibrate")
    fitted = json.loads((runs / "calibrate" / "manifest.json").read_text())["calibration"]["fitted"]
    assert run.summary["calibration/fitted/ece"] == fitted["ece"]
    assert "model-gatv2" in run.inputs
    assert set(run.outputs) == {"model-calibrate", "report-calibrate"}
    assert {entry.path for entry in run.outputs["model-calibrate"].manifest.contents} == {
        "model.safetensors",
        "manifest.json",
    }
    metrics = mlflow_runs(runs)["calibrate"].data.metrics
    assert metrics["calibration/fitted/ece"] == fitted["ece"]


def test_csv_has_the_curves_alone(runs: Path) -> None:
    header = (runs / "train/gatv2/csv/version_0/metrics.csv").read_text().splitlines()[0].split(",")
    assert {"train/loss_step", "train/lr", "train/grad_norm", "val/ndcg@10"} <= set(header)
    assert not [name for name in header if name.startswith(("ring/", "test/"))]


def test_mlflow_has_the_same(runs: Path, systems: dict[str, dict[str, Any]]) -> None:
    found = mlflow_runs(runs)
    assert sorted(found) == ["calibrate", "evaluate", "gatv2", "mlp"]
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    assert len({found[name].data.tags["group"] for name in ("gatv2", "mlp")}) == 1
    for system in ("mlp", "gatv2"):
        run = found[system]
        for key, points in (("train/loss_step", 4), ("train/lr", 4), ("train/grad_norm", 4), ("val/ndcg10", 2)):
            assert len(mlflow_curve(runs, run, key)) == points
        assert run.data.metrics["test/ring/ndcg10"] == systems[system]["nDCG@10"]
        files = {f"model/{system}/checkpoints/best.ckpt", f"model/{system}/manifest.json", "plots/curves.png"}
        assert files <= mlflow_files(runs, run)
    judged = found["evaluate"]
    assert judged.data.metrics["ring/gatv2/ndcg10"] == systems["gatv2"]["nDCG@10"]
    read = {entry.dataset.name: entry.dataset for entry in judged.inputs.dataset_inputs}
    assert sorted(read) == ["dataset-ring", "model-gatv2", "model-mlp"]
    assert json.loads(read["dataset-ring"].profile)["queries"] == {"train": 4, "val": 2, "test": 2}
    files = {"report/judge/report.md", "report/judge/report.html", "settings.json", "tables/ring-systems.json"}
    assert files <= mlflow_files(runs, judged)
    for plot in (runs / "judge" / "plots").glob("*.png"):
        assert (mlflow_folder(runs, judged) / "plots" / plot.name).read_bytes() == plot.read_bytes()


def test_mlflow_reads_the_tables(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pandas", reason="mlflow.load_table needs pandas")
    from mlflow.tracking import MlflowClient

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file:{runs}/mlruns")
    run = mlflow_runs(runs)["gatv2"]
    table = MlflowClient().load_table(run.info.experiment_id, "tables/ring-systems.json", [run.info.run_id])
    assert list(table["system"]) == SYSTEMS
    assert list(table["nDCG@10"]) == [1.0] * len(SYSTEMS)


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_tensorboard_has_curves_and_hyperparameters(runs: Path, system: str) -> None:
    events = tensorboard_events(runs / "train" / system)
    for key, points in (("train/loss_step", 4), ("train/lr", 4), ("train/grad_norm", 4), ("val/ndcg@10", 2)):
        assert len(events.Scalars(key)) == points
    assert [point.value for point in events.Scalars("test/ring/ndcg@10")] == [1.0]
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    chosen = HParamsPluginData.FromString(content).session_start_info.hparams
    assert chosen["config/trainer/max_epochs"].number_value == EPOCHS


def test_tensorboard_has_tables_and_images(runs: Path) -> None:
    events = tensorboard_events(runs / "train" / "gatv2")
    text = events.Tensors("tables/ring/systems/text_summary")[0].tensor_proto.string_val[0].decode()
    assert text.splitlines()[0].startswith("| system | PR@5 | PR@10 |")
    assert [line.split("|")[1].strip() for line in text.splitlines()[2:]] == SYSTEMS
    plots = [*(runs / "train" / "plots").glob("*.png"), runs / "train" / "gatv2" / "curves.png"]
    assert {tag.removeprefix("plots/") for tag in events.Tags()["images"]} == {plot.stem for plot in plots}
    for plot in plots:
        shown = imread(BytesIO(events.Images(f"plots/{plot.stem}")[0].encoded_image_string))
        assert np.abs(shown[..., :3] - imread(plot)[..., :3]).max() <= 1 / 255


def test_a_resumed_training_goes_on_with_its_runs(resumed: Path) -> None:
    folder = resumed / "train" / "gatv2"
    ids, offline = json.loads((folder / "tracking.json").read_text()), OfflineRun(folder)
    assert offline.ids == {ids["wandb"]}
    assert len(offline.files) == 2
    assert [step for step, _ in offline.curve("train/lr")] == [0, 1, 2, 3]
    run = mlflow_runs(resumed)["gatv2"]
    assert run.info.run_id == ids["mlflow"]
    assert run.info.status == "FINISHED"
    assert [step for step, _ in mlflow_curve(resumed, run, "train/lr")] == [0, 1, 2, 3]
    assert run.data.params["config/trainer/max_epochs"] == "1"
    settings = json.loads((mlflow_folder(resumed, run) / "settings.json").read_text())
    assert settings["config"]["trainer"]["max_epochs"] == 2


def test_systems_share_a_run_that_the_environment_names(
    run_command, job: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WANDB_RUN_ID", "named")
    run = ("trainer.max_epochs=1", "logger=wandb", f"hydra.run.dir={tmp_path}")
    run_command("train.py", *job, *run, pictures=True)
    (file,) = tmp_path.glob("*/wandb/offline-run-*/*.wandb")
    shared = OfflineRun(tmp_path / "mlp")
    assert (file.name, shared.ids, shared.exit_codes) == ("run-named.wandb", {"named"}, [0])
    assert shared.points["train/lr"] == 2 * STEPS
    assert {"model-mlp", "model-gatv2"} <= set(shared.outputs)


def test_a_failed_job_says_so(run_command, job: tuple[str, ...], tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="wandb is optional")
    fails = ("trainer.max_epochs=1", "+trainer.limit_train_batches=-1", "logger=[wandb,mlflow]", "~ablations.mlp")
    run_command("train.py", *job, *fails, f"paths.runs={tmp_path}", f"hydra.run.dir={tmp_path}/run", status=1)
    assert [run.info.status for run in mlflow_runs(tmp_path).values()] == ["FAILED"]
    assert OfflineRun(tmp_path / "run" / "gatv2").exit_codes == [1]


def test_checkpoints_are_found_at_any_depth() -> None:
    tracking = Tracking()
    tracking.reads_checkpoints_of({"rows": [{"checkpoint": "base"}, {"checkpoint": None}], "checkpoint": "none/such"})
    assert [read.label for read in tracking._inputs] == ["model-base"]
