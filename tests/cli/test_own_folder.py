"""What a newcomer does with a folder of one file of judgements and no edges."""

import json
from pathlib import Path

import pytest

from tests.support.commands import RunCommand
from tests.support.folders import write_dataset

WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet", "bread", "castle"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(
        tmp_path_factory.mktemp("data") / "mine",
        corpus=[{"_id": f"p{i}", "title": "", "text": f"A text about {word}."} for i, word in enumerate(WORDS)],
        queries=[{"_id": f"q{i}", "text": f"What is a {word}?"} for i, word in enumerate(WORDS)],
        all=[(f"q{i}", f"p{i}") for i in range(len(WORDS))],
    )


def test_a_missing_split_is_refused_before_anything_is_encoded(
    run_command: RunCommand, folder: Path, tmp_path: Path
) -> None:
    data = ("data=folder", f"data.path={folder}", "encoder.model=/nowhere", "encoder=sentence_transformer")
    done = run_command("train.py", *data, f"hydra.run.dir={tmp_path / 'run'}", status=1)
    assert done.stderr == (
        "data set 'mine' has the splits ['all'], got 'train'; to divide what there is: "
        "data.splits=auto, or "
        '\'data.splits={train: "all[:80%]", val: "all[80%:90%]", test: "all[90%:]"}\'\n'
    )


@pytest.mark.slow
def test_an_evaluation_has_the_splits_of_the_training(run_command: RunCommand, folder: Path, tmp_path: Path) -> None:
    splits = 'data.splits={train: "all[:60%]", val: "all[60%:80%]", test: "all[80%:]"}'
    small = ("encoder=none", "retriever=bm25", "retriever.top_k=5", "features=scores", "trainer.max_epochs=1")
    run = tmp_path / "run"
    run_command("train.py", "data=folder", f"data.path={folder}", splits, *small, f"hydra.run.dir={run}")
    for number, data in enumerate((f"datasets=[{folder}]", f"data.path={folder}")):
        chosen = (data,) if number == 0 else ("data=folder", data)
        judged = tmp_path / f"judged{number}"
        run_command("evaluate.py", f"checkpoint={run}", *chosen, f"hydra.run.dir={judged}")
        metrics = json.loads((judged / "metrics.json").read_text())["datasets"]["mine"]
        assert metrics["queries"] == 2
