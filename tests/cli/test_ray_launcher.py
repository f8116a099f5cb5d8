"""``hydra/launcher=ray`` on a cluster of two workers that is started here."""

from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.mark.slow
def test_a_sweep_on_two_workers_is_that_of_one_process(
    small_attack: Path, run_command: Any, run_process: Any, tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is optional: pip install 'graphrerank[ray]'")
    job = (
        "-m", "seed=1,2", "features=scores,scores_match", f"data.path={small_attack}", "encoder=none", "retriever=bm25",
        "retriever.top_k=10", "trainer.max_epochs=1", "+trainer.enable_progress_bar=false", "~ablations.mlp",
    )  # fmt: skip
    ray = ("hydra/launcher=ray", "hydra.launcher.num_cpus=2")
    for run, name, launcher in ((run_command, "basic", ()), (run_process, "ray", ray)):
        run("train.py", *job, *launcher, f"hydra.sweep.dir={tmp_path / name}")
    weights = [
        [
            torch.load(tmp_path / name / str(number) / "gatv2" / "checkpoints" / "best.ckpt", weights_only=True)
            for number in range(4)
        ]
        for name in ("basic", "ray")
    ]
    for one, other in zip(*weights, strict=True):
        assert all(torch.equal(part, other["state_dict"][key]) for key, part in one["state_dict"].items())


def test_without_ray_the_error_says_how_to_install_it(
    run_command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    done = run_command("train.py", "-m", "hydra/launcher=ray", "seed=1,2", f"hydra.sweep.dir={tmp_path}", status=1)
    assert "hydra/launcher=ray needs Ray: pip install 'graphrerank[ray]'" in done.stderr
