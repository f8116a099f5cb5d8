"""The commands as users start them, each a process; all else about them is tested in this process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support import ROOT


def _systems(folder: Path) -> dict[str, dict[str, float]]:
    systems = json.loads((folder / "metrics.json").read_text())["datasets"]["attack"]["systems"]
    return {name: {key: entry[key] for key in entry if "@" in key} for name, entry in systems.items()}


def test_train_and_evaluate(
    trained: Path, small_job: tuple[str, ...], small_encoder: tuple[str, ...], run_process, tmp_path: Path
) -> None:
    """Against the same commands in this process."""
    done = run_process("train.py", *small_job, f"hydra.run.dir={tmp_path / 'run'}")
    assert done.stdout.splitlines()[-1] == str(tmp_path / "run")
    assert _systems(tmp_path / "run") == _systems(trained)
    assert (tmp_path / "run" / "gatv2" / "curves.png").read_bytes().startswith(b"\x89PNG")
    done = run_process(
        "evaluate.py", f"checkpoint={tmp_path / 'run'}", *small_encoder, f"hydra.run.dir={tmp_path / 'judged'}"
    )
    assert done.stdout.splitlines()[-1] == str(tmp_path / "judged")
    assert _systems(tmp_path / "judged") == _systems(trained)


def test_sigterm_ends_a_training_that_is_not_marked_finished(
    small_job: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    environment = {**os.environ, "GRAPHRERANK_CACHE": str(cache)}
    command = [sys.executable, str(ROOT / "train.py"), *small_job, "trainer.max_epochs=10000", "~ablations.mlp"]
    command += ["callbacks.early_stopping=null", f"hydra.run.dir={tmp_path}"]
    with subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE) as process:
        while process.poll() is None and not list(tmp_path.glob("gatv2/checkpoints/last.ckpt")):
            time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        lines = process.stderr.read().splitlines()
    assert (process.returncode, lines[-1]) == (143, "terminated")
    assert not json.loads((tmp_path / "gatv2" / "manifest.json").read_text())["finished"]


def test_help_names_the_settings(run_process) -> None:
    done = run_process("evaluate.py", "--help")
    for setting in ("checkpoint:", "datasets:", "measures:", "pipeline: ea_graphrag, "):
        assert setting in done.stdout


def test_an_error_is_told_on_standard_error_with_status_1(run_process) -> None:
    done = run_process("train.py", "sede=3", status=1)
    assert done.stdout == ""
    assert "Key 'sede' is not in struct" in done.stderr
