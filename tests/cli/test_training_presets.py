"""Optimisers, schedules, averages and debugging presets on the command line, on a small data set."""

import json
from pathlib import Path

import pytest
import torch

from tests.support.commands import RunCommand
from tests.support.folders import write_dataset

WORDS = [f"word{number}" for number in range(40)]


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 training queries, whose answers are neighbours of the passages with their words."""
    corpus = [{"_id": f"a{n}", "title": "", "text": f"about {word}"} for n, word in enumerate(WORDS)]
    corpus += [{"_id": f"b{n}", "title": "", "text": f"answer {n}"} for n, _ in enumerate(WORDS)]
    split = {"train": range(24), "val": range(24, 32), "test": range(32, 40)}
    return write_dataset(
        tmp_path_factory.mktemp("data") / "towns",
        corpus=corpus,
        queries=[{"_id": f"q{n}", "text": f"what of {word}?"} for n, word in enumerate(WORDS)],
        edges=[(f"a{n}", f"b{n}", "link") for n, _ in enumerate(WORDS)],
        **{name: [(f"q{n}", f"b{n}", 1) for n in numbers] for name, numbers in split.items()},
    )


def train(run_command: RunCommand, towns: Path, folder: Path, *settings: str) -> str:
    common = (
        "data=folder",
        f"data.path={towns}",
        "retriever=bm25",
        "encoder=none",
        "~ablations.mlp",
        "features=scores",
    )
    done = run_command("train.py", *common, f"hydra.run.dir={folder}", *settings)
    return str(done.stdout)


@pytest.mark.slow
def test_a_short_training_learns_and_says_how_short_it_is(run_command: RunCommand, towns: Path, tmp_path: Path) -> None:
    lines = train(run_command, towns, tmp_path / "run").splitlines()
    assert any("parameters for 4 steps (1 batch per epoch) with AdamW" in line for line in lines)
    assert "warm-up shortened from 100 to 0 steps, a tenth of the training" in lines
    losses = [float(line.split()[1]) for line in lines if line.split()[:1] in (["1"], ["4"]) and len(line.split()) > 5]
    assert losses[-1] < 0.97 * losses[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "optimizer", "scheduler"),
    [
        (("optimizer=sgd", "scheduler=plateau", "module.parameter_groups={lin_out: 1e-3}"), "SGD", "plateau"),
        (("optimizer=adafactor", "scheduler=linear", "callbacks=swa"), "Adafactor", "linear"),
        (("optimizer=muon", "scheduler=constant", "callbacks=ema"), "MuonAdamW", "constant"),
    ],
)
def test_parts_of_the_optimisation(
    settings: tuple[str, ...], optimizer: str, scheduler: str, run_command: RunCommand, towns: Path, tmp_path: Path
) -> None:
    train(run_command, towns, tmp_path / "run", *settings, "trainer.max_epochs=2")
    manifest = json.loads((tmp_path / "run" / "gatv2" / "manifest.json").read_text())
    assert manifest["optimizer"]["name"].endswith(f".{optimizer}")
    assert manifest["scheduler"]["name"].endswith(f".{scheduler}")
    state = torch.load(tmp_path / "run" / "gatv2" / "checkpoints" / "best.ckpt", weights_only=True)
    assert ("current_model_state" in state) == any("callbacks=" in setting for setting in settings)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["overfit", "profile", "limit", "anomaly"])
def test_debugging_presets(preset: str, run_command: RunCommand, towns: Path, tmp_path: Path) -> None:
    train(run_command, towns, tmp_path / "run", f"debug={preset}")
    assert (tmp_path / "run" / "gatv2" / "checkpoints" / "best.ckpt").is_file()
    assert (tmp_path / "run" / "gatv2" / "fit-profile.txt").is_file() == (preset == "profile")
