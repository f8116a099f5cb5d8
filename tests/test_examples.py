"""Every script of `examples/` runs as its header says, on few queries, and prints what it promises."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from unittest.mock import patch

import pytest

from graphrerank.data.loaders import attack
from tests.support import ROOT
from tests.support.commands import run_script

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TRIAL = ["--num-queries", "40"]
SHORT = ["--epochs", "1"]
#: Arguments of each script, and a pattern of its output. {reader} is the folder of a small cross-encoder.
RUNS = {
    "custom_loss": ([*TRIAL, *SHORT], r"│margin +│ +\d"),
    "custom_model": ([*TRIAL, *SHORT], r"│neighbour_mlp +│ +\d"),
    "custom_optimizer": ([*TRIAL, *SHORT], r"sgd torch\.optim\.sgd\.SGD [\d,]+ parameters"),
    "custom_retriever": (TRIAL, r"│base +│ +\d"),
    "distill_cross_encoder": (
        ["--teacher", "{reader}", "--max-length", "48", *TRIAL, *SHORT],
        r"│judged_and_distilled +│ +\d",
    ),
    "evaluate_two_systems": (TRIAL, r"Wrote report/report\.html"),
    "index_and_rerank": ([str(ROOT / "docs" / "papers"), "How is the adapter trained?"], r"base\n  \S+\.md"),
    "optuna_search": (
        ["--trials", "2", "--seeds", "2", *TRIAL, *SHORT],
        r"Best of 2 trials: 0\.\d(?s:.*)Means over seeds",
    ),
    "plain_lightning": (SHORT, r"Best validation nDCG@10: 0\.\d"),
    "pyg_convolution": ([*TRIAL, *SHORT], r"│sageconv +│ +\d"),
    "serve_and_call": ([], r"Solaris[^\n]*\n\d\.\d\d  Andrei Tarkovsky"),
    "test_and_predict": (SHORT, r"Test nDCG@10: 0\.\d+[\s\S]*Query \S+:\n  \S+  \d+%"),
    "train_from_python": ([*TRIAL, *SHORT], r"Saved the reranker in my_reranker"),
    "wandb_sweep": (["--offline", *TRIAL, *SHORT], r"Trained \S+best\.ckpt with listwise"),
}
ALONE = "plain_lightning"  # the script that runs as a user runs it


@pytest.fixture(scope="module", autouse=True)
def _attack_is_read_once() -> Iterator[None]:
    """Parse the files of ATT&CK once. Most scripts load them several times, which takes longer than their training."""
    with patch.object(attack, "read_attack", cache(attack.read_attack)):
        yield


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_a_script_can_be_copied(script: Path) -> None:
    content = script.read_text(encoding="utf-8")
    assert len(content.splitlines()) <= 80
    assert f"python examples/{script.name}" in content
    assert not re.search(r"^(from|import) (tests|examples)\b", content, re.MULTILINE)


@pytest.mark.slow  # a training or a service each
@pytest.mark.parametrize("script", [script for script in EXAMPLES if script.stem != ALONE], ids=lambda path: path.stem)
def test_a_script_runs(script: Path, reader: Path, cache: Path, tmp_path: Path) -> None:
    """In this process, because importing torch takes longer than most of the scripts."""
    arguments, pattern = RUNS[script.stem]
    arguments = [argument.format(reader=reader) for argument in arguments]
    done = run_script(f"examples/{script.name}", *arguments, folder=tmp_path, cache=cache)
    assert re.search(pattern, done.stdout + done.stderr), done.stdout


@pytest.mark.slow  # a process
def test_a_script_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    arguments, pattern = RUNS[ALONE]
    command = [sys.executable, str(ROOT / "examples" / f"{ALONE}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(pattern, done.stdout)
