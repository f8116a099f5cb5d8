"""The commands as users start them, each a process; all else about them is tested in this process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support import ROOT
from tests.support.commands import measures_of


def test_evaluate(trained: Path, small_encoder: tuple[str, ...], run_process, tmp_path: Path) -> None:
    """Against the same command in this process."""
    done = run_process("evaluate.py", f"checkpoint={trained}", *small_encoder, f"hydra.run.dir={tmp_path}")
    assert done.stdout.splitlines()[-1] == str(tmp_path)
    assert measures_of(tmp_path) == measures_of(trained)


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
        lines = process.stderr.read().splitlines()
    assert (process.returncode, lines[-1]) == (143, "terminated")
    assert not json.loads((tmp_path / "gatv2" / "manifest.json").read_text())["finished"]
