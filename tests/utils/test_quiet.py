"""Commands and ``fit`` print what is ours, and the warnings that a user must act on."""

import json
import logging
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from graphrerank.utils.quiet import REMARKS, quiet_lightning
from tests.support import ROOT
from tests.support.commands import RunCommand
from tests.support.folders import write_films
from tests.support.isolation import isolated

OF_LIGHTNING = re.compile(
    r"lightning|litlogger|litmodels|Tip:|transfer_batch_to_device|log_every_n_steps|GPU available|TPU available|"
    r"`Trainer|stopped:|Seed set|Restor|Warning|PossibleUser|num_workers|exists and is not empty|fast_dev_run|"
    r"Using .* precision|LOCAL_RANK|distributed_backend|not resumable|LeafSpec|Experiment with name",
    re.IGNORECASE,
)
OURS = re.compile(
    r"films: \d+ nodes, .*|training \w+ \(\d of \d\)|epoch( +\S+)+|( *[\d.]+)+|films test: .*|[┏┡└│┃].*|"
    r"candidates: .*|ceiling of PR .*|queries with a tie .*|GATv2 against .*|peak memory [\d.]+ GiB|/[^\s:]+|"
    r"training [\d,]+ parameters for \d+ steps? .*|warm-up shortened from \d+ to \d+ steps, .*|"
    r"val/ndcg@10 of the best epoch is .*|continuing in .*|.* unbroken training\. .*|"
    r"restart probabilities .*|best by .*|[\w@][\w @]*: .*|"  # notes and legend
    r"(GATv2|[\d.]+%;|equal|scores|in|the|order|that|system|\(otherwise|of|corpus\)|\s)+",  # wrapped
)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Settings of a training on eight questions."""
    folder = write_films(tmp_path_factory.mktemp("data") / "films", edges=True, judged=True)
    data = ("data=folder", f"data.path={folder}", "data.splits=auto")
    return (*data, "features=scores", "encoder=none", "retriever=bm25", "batches.batch_size=3", "trainer.max_epochs=2")


def check(output: str) -> None:
    lines = [line for line in output.splitlines() if line.strip()]
    assert lines
    assert [line for line in lines if OF_LIGHTNING.search(line)] == []
    assert [line for line in lines if not OURS.fullmatch(line)] == []


#: Jobs of ``train.py``, each a list of arguments, one after the other in one process.
SEVERAL_JOBS = """
import json, runpy, sys

script, jobs = sys.argv[1], json.loads(sys.argv[2])
for arguments in jobs:
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
"""


@pytest.mark.slow  # processes that load all of torch
def test_trainings_print_only_our_lines_also_when_they_are_resumed(
    films: tuple[str, ...], run_process: RunCommand, tmp_path: Path
) -> None:
    """With ablations, an accumulated gradient, a logging interval beyond the epoch, and a run that goes on.

    A trial of a batch is trained in the process of the first run, because torch takes longer to load.
    """
    more = ("+trainer.accumulate_grad_batches=2", "trainer.log_every_n_steps=50")
    arguments = (*films, *more, f"paths.runs={tmp_path}")
    whole = (*arguments, "logger=[csv,mlflow]", f"hydra.run.dir={tmp_path / 'run'}")
    trial = (*films, "+trainer.fast_dev_run=true", "~ablations.mlp", f"hydra.run.dir={tmp_path / 'trial'}")
    script = tmp_path / "jobs.py"
    script.write_text(SEVERAL_JOBS)
    done = run_process(str(script), str(ROOT / "train.py"), json.dumps([trial, whole]))
    check(done.stdout + done.stderr)
    assert [line for line in done.stdout.splitlines() if line.startswith(str(tmp_path))] == [
        str(tmp_path / "trial"), str(tmp_path / "run")
    ]  # fmt: skip
    manifest = tmp_path / "run" / "gatv2" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"finished": true', '"finished": false'))
    done = run_process(
        "train.py", *arguments, f"ckpt_path={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'second'}",
        "trainer.max_epochs=3",
    )  # fmt: skip
    check(done.stdout + done.stderr)
    assert "training gatv2" in done.stdout


IN_PYTHON = """
import logging, sys, warnings
from lightning.pytorch.callbacks import Callback
from graphrerank import Dataset, fit

logging.getLogger("graphrerank").addHandler(logging.StreamHandler(sys.stdout))
logging.getLogger("graphrerank").setLevel(logging.INFO)

class Speaks(Callback):
    def on_train_start(self, trainer, module):
        warnings.warn("the loss is NaN")
        warnings.warn("`training_step` returned `None`", UserWarning)

settings = {"retriever": "bm25", "encoder": None, "features": "scores", "max_epochs": 1}
data = Dataset.from_folder(sys.argv[1], splits="auto")
fit(data, **settings, trainer={"accelerator": "cpu"}, callbacks=[Speaks()], run_dir=sys.argv[2])
"""


def check_warnings(output: str) -> None:
    warned = [line.split(": ", 1)[-1] for line in output.splitlines() if "Warning" in line]
    assert warned == ["UserWarning: the loss is NaN", "UserWarning: `training_step` returned `None`"]


def test_fit_in_python_logs_its_epochs_and_what_a_callback_warns_of(films: tuple[str, ...], tmp_path: Path) -> None:
    stdout, stderr = StringIO(), StringIO()
    with redirect_stdout(stdout), redirect_stderr(stderr), isolated({}, tmp_path), own_logger():
        sys.argv = ["-c", films[1].removeprefix("data.path="), str(tmp_path / "run")]
        exec(compile(IN_PYTHON, "<string>", "exec"), {"__name__": "__main__"})
    check(stdout.getvalue())
    check_warnings(stderr.getvalue())


@contextmanager
def own_logger() -> Iterator[None]:
    """Take back the handlers that a script adds to the logger of this library."""
    logger = logging.getLogger("graphrerank")
    before = list(logger.handlers)
    try:
        yield
    finally:
        logger.handlers[:] = before


@pytest.mark.slow  # a process that loads all of torch
def test_fit_in_a_process_of_its_own_logs_the_same(films: tuple[str, ...], tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", IN_PYTHON, films[1].removeprefix("data.path="), str(tmp_path / "run")]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check(done.stdout)
    check_warnings(done.stderr)


def test_levels_and_filters_of_the_caller_hold_again() -> None:
    loggers = [logging.getLogger(name) for name in REMARKS]
    loggers[0].setLevel(logging.DEBUG)
    loggers[1].setLevel(logging.CRITICAL)
    before = [logger.level for logger in loggers], list(warnings.filters)
    try:
        with quiet_lightning():
            levels = [logger.level for logger in loggers[:2]]
        assert levels == [logging.WARNING, logging.CRITICAL]
        assert ([logger.level for logger in loggers], list(warnings.filters)) == before
    finally:
        for logger in loggers[:2]:
            logger.setLevel(logging.NOTSET)


def passed_on(message: str) -> list[str]:
    """Return the warnings that are shown if Lightning warns with a message."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with quiet_lightning():
            warnings.warn(message, stacklevel=1)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize(
    "message",
    [
        "The number of training batches (1) is smaller than the logging interval Trainer(log_every_n_steps=50). Set",
        "The 'train_dataloader' does not have many workers which may be a bottleneck.",
        "It is recommended to use `self.log('val/loss', ..., sync_dist=True)` when logging on epoch level",
        "Checkpoint directory /runs/checkpoints exists and is not empty.",
        "You're resuming from a checkpoint that ended before the epoch ended and your dataloader is not resumable.",
        "GPU available but not used. You can set it by doing `Trainer(accelerator='gpu')`.",
        "MLFlow only allows '_', '/', '.' and ' ' special characters in metric name.",
        "`isinstance(treespec, LeafSpec)` is deprecated, use",
    ],
)
def test_unfounded_warnings_are_left_out(message: str) -> None:
    assert passed_on(message) == []


@pytest.mark.parametrize(
    "message",
    [
        "`ModelCheckpoint(monitor='val/ndgc')` could not find the monitored key in the returned metrics",
        "Found 3 module(s) in eval mode at the start of training.",
        "The dirpath has changed from 'a' to 'b', therefore `best_model_score` won't be reloaded.",
        "Total length of `Loader` across ranks is zero. Please make sure this was your intention.",
        "loss is NaN",
    ],
)
def test_warnings_that_a_user_must_act_on_pass(message: str) -> None:
    assert passed_on(message) == [message]
