"""``trainer.devices=2 trainer.strategy=ddp``: two gloo processes on the CPU; and training and sweeps on Ray."""

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.utils.processes import is_first_process
from tests.support.commands import changed_weights, measures_of, weights_of

JOB = ("retriever.top_k=10", "model.dropout=0", "module.warmup_steps=3", "+trainer.enable_progress_bar=false")
DDP = ("trainer.devices=2", "trainer.strategy=ddp")


def measures(folder: Path) -> dict[str, float]:
    return {f"{name} {key}": score for name, entry in measures_of(folder).items() for key, score in entry.items()}


def logged(folder: Path) -> list[dict[str, float]]:
    with (folder / "csv" / "version_0" / "metrics.csv").open() as file:
        return [{key: float(number) for key, number in row.items() if number} for row in csv.DictReader(file)]


def assert_same_curves(
    alone_folder: Path, shared_folder: Path, *, close_steps: int | None = None, norms: float = 1e-2
) -> None:
    """Compare the logged numbers of one process with those of two, which round the sums of their halves otherwise.

    Adam's steps make the differences larger. They must be smaller in the first ``close_steps`` steps, or in the first
    epoch if it is None. ``norms`` is the relative tolerance of the other steps for norms of gradients.
    """
    for alone, shared in zip(logged(alone_folder), logged(shared_folder), strict=True):
        is_first = alone.get("epoch", 0) == 0 if close_steps is None else alone["step"] < close_steps
        # the norm's square adds up squares of all gradients, each of which is rounded in float32
        pair = [row.pop("train/grad_norm", 0.0) for row in (alone, shared)]
        assert pair[1] == pytest.approx(pair[0], rel=1e-5 if is_first else norms)
        assert shared == pytest.approx(alone, rel=1e-6 if is_first else 1e-3, abs=1e-6 if is_first else 1e-5)


@pytest.fixture(scope="module")
def job(small_attack: Path) -> tuple[str, ...]:
    return ("data=attack", f"data.path={small_attack}", "encoder=none", "retriever=bm25", "features=scores", *JOB)


@pytest.fixture(scope="module")
def together(job: tuple[str, ...], run_process: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run folder of two processes, which the console script starts where there is one, and what they printed."""
    folder = tmp_path_factory.mktemp("runs") / "together"
    script = Path(sys.executable).with_name("graphrerank")
    command = [str(script), "train"] if script.exists() else ["train.py"]
    done = run_process(*command, *job, *DDP, "trainer.max_epochs=3", f"hydra.run.dir={folder}")
    return folder, done.stdout


@pytest.mark.slow
def test_two_processes_train_what_one_does(
    together: tuple[Path, str], job: tuple[str, ...], run_command: Any, tmp_path: Path
) -> None:
    run_command("train.py", *job, "trainer.max_epochs=3", f"hydra.run.dir={tmp_path / 'alone'}")
    for system in ("mlp", "gatv2"):
        assert len(logged(together[0] / system)) >= 6
        assert_same_curves(tmp_path / "alone" / system, together[0] / system)
    assert measures(together[0]) == pytest.approx(measures(tmp_path / "alone"), abs=2e-3)


@pytest.mark.slow
def test_only_the_first_process_prints_and_writes(together: tuple[Path, str]) -> None:
    folder, printed = together
    assert printed.count("training gatv2 (2 of 2)") == printed.count("peak memory") == 1
    assert printed.splitlines()[-1] == str(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]
    files = ["metrics.json", "report.html", "report.md", "queries.json", "result.json"]
    assert sorted(path.name for path in folder.iterdir()) == sorted([".hydra", "gatv2", "mlp", "plots", "runs", *files])
    assert [path.name for path in (folder / "gatv2" / "csv").iterdir()] == ["version_0"]
    assert "trainer.devices=2" in (folder / ".hydra" / "overrides.yaml").read_text()
    assert json.loads((folder / "gatv2" / "manifest.json").read_text())["finished"]


@pytest.mark.slow
def test_resumed_equals_unbroken(
    together: tuple[Path, str], job: tuple[str, ...], run_process: Any, run_command: Any, tmp_path: Path
) -> None:
    """After a stop in the second epoch; on one device too."""
    broken = tmp_path / "broken"
    stop = ("+callbacks.stop._target_=tests.support.stopping.StopInEpoch", "+callbacks.stop.epoch=1")
    last = ("trainer.max_epochs=3", "~ablations.mlp")
    run_process("train.py", *job, *DDP, *stop, *last, f"hydra.run.dir={broken}", status=1)
    alone = tmp_path / "alone"
    shutil.copytree(broken, alone)
    for run, folder, devices in ((run_process, broken, DDP), (run_command, alone, ())):
        run("train.py", *job, *devices, *last, f"ckpt_path={folder}")
        found = {name: score for name, score in measures(folder).items() if "mlp" not in name}
        assert found == pytest.approx({name: measures(together[0])[name] for name in found}, abs=2e-3)
    assert changed_weights(together[0] / "gatv2", broken / "gatv2", "last") == []


@pytest.mark.slow
def test_a_sweep_starts_new_processes_for_each_run(job: tuple[str, ...], run_process: Any, tmp_path: Path) -> None:
    done = run_process(
        "train.py", "-m", "seed=1,2", *job, *DDP, "trainer.max_epochs=1", "~ablations.mlp",
        f"hydra.sweep.dir={tmp_path}",
    )  # fmt: skip
    printed = [line for line in done.stdout.splitlines() if line.startswith(str(tmp_path))]
    assert printed == [str(tmp_path / "0"), str(tmp_path / "1")]
    first, second = (weights_of(tmp_path / run / "gatv2", "last") for run in "01")
    assert not torch.equal(first["model.lin_in.weight"], second["model.lin_in.weight"])


def test_processes_started_from_outside_need_a_folder_in_common(
    run_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    done = run_command("train.py", f"paths.runs={tmp_path}", status=1)
    assert "`hydra.run.dir` must be set if a launcher such as torchrun starts the processes" in done.stderr


def test_the_first_process_is_told_from_the_environment() -> None:
    assert is_first_process({"SLURM_PROCID": "0"})
    for others in (
        {"RANK": "2", "LOCAL_RANK": "0"},
        {"NODE_RANK": "1"},
        {"SLURM_PROCID": "3"},
    ):  # as torchrun sets them
        assert not is_first_process(others)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_two_workers_of_ray_train_what_one_process_does(job: tuple[str, ...], run_command: Any, tmp_path: Path) -> None:
    settings = ("trainer.max_epochs=2", "~ablations.mlp")
    ray = ("trainer=ray", "trainer.num_nodes=2")
    for name, trainer in (("alone", ()), ("ray", ray)):
        done = run_command("train.py", *trainer, *job, *settings, f"hydra.run.dir={tmp_path / name}")
        assert done.stdout.splitlines()[-1] == str(tmp_path / name)
        assert done.stdout.count("training gatv2 (1 of 1)") == 1
    assert len(logged(tmp_path / "ray" / "gatv2")) >= 4
    assert_same_curves(tmp_path / "alone" / "gatv2", tmp_path / "ray" / "gatv2", close_steps=5, norms=0.05)
    assert measures(tmp_path / "ray") == pytest.approx(measures(tmp_path / "alone"), abs=2e-3)
    assert not list(tmp_path.glob(".ray-*"))


def test_ray_trains_only_jobs_of_several_processes(run_command: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is optional: pip install 'graphrerank[ray]'")
    done = run_command(
        "train.py", "experiment=complexity_adapter", "trainer=ray", f"hydra.run.dir={tmp_path / 'run'}", status=1
    )
    assert "`trainer` must not be ray for this job, which supports a single process" in done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("ray_session")
def test_a_sweep_on_two_workers_of_ray_is_that_of_one_process(
    job: tuple[str, ...], run_command: Any, tmp_path: Path
) -> None:
    sweep = ("-m", "seed=1,2", *job, "trainer.max_epochs=1", "~ablations.mlp")
    ray = ("hydra/launcher=ray", "hydra.launcher.num_cpus=2")
    for name, launcher in (("basic", ()), ("ray", ray)):
        run_command("train.py", *sweep, *launcher, f"hydra.sweep.dir={tmp_path / name}")
    for number in "01":
        assert changed_weights(tmp_path / "basic" / number / "gatv2", tmp_path / "ray" / number / "gatv2") == []


def test_without_ray_the_error_says_how_to_install_it(
    run_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = run_command("train.py", "-m", "hydra/launcher=ray", "seed=1,2", f"hydra.sweep.dir={tmp_path}", status=1)
    assert "hydra/launcher=ray needs ray, which is not installed: pip install 'graphrerank[ray]'" in done.stderr
