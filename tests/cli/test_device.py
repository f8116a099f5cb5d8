"""Commands on a device: their numbers are those of the CPU."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import measures_of, train_in, without_times

NUM_QUERIES = 40  # two batches


@pytest.fixture(scope="module")
def job(small_job: tuple[str, ...]) -> tuple[str, ...]:
    few = f"num_queries={NUM_QUERIES}"  # of each split: operations are slow on the made-up device
    return (*small_job, "features=full", "model.dropout=0", "trainer.max_epochs=1", few)


@pytest.fixture(scope="module")
def trained_on_cpu(run_command: Any, job: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_in(tmp_path_factory.mktemp("cpu") / "run", run_command, *job, "device=cpu")


@pytest.mark.slow
def test_training(run_on_device: Any, job: tuple[str, ...], trained_on_cpu: Path, tmp_path: Path) -> None:
    run_on_device("train.py", *job, f"hydra.run.dir={tmp_path}")
    here, there = measures_of(trained_on_cpu), measures_of(tmp_path)
    assert list(here) == list(there)
    for system, measures in here.items():
        assert there[system] == pytest.approx(measures, abs=0.02), system


@pytest.mark.parametrize("num_queries", [4, pytest.param(NUM_QUERIES, marks=pytest.mark.slow)])
def test_evaluation(
    num_queries: Any, run_command: Any, run_on_device: Any, small_job: Any, small_encoder: Any,
    trained_on_cpu: Path, tmp_path: Path,
) -> None:  # fmt: skip
    systems = f"systems=[{trained_on_cpu},expand_then_rerank]"
    arguments = (systems, *small_job[:2], *small_encoder, f"num_queries={num_queries}")
    run_command("evaluate.py", *arguments, f"hydra.run.dir={tmp_path / 'cpu'}", "device=cpu")
    run_on_device("evaluate.py", *arguments, f"hydra.run.dir={tmp_path / 'device'}")
    assert without_times(tmp_path / "device") == without_times(tmp_path / "cpu")
