"""Errors of commands, as the user reads them."""

import json
import os
import signal
from pathlib import Path

import pytest
from hydra.errors import InstantiationException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue

from graphrerank.cli.errors import is_users, message_of, terminating
from graphrerank.cli.hydra_jobs import read_arguments, run_hydra
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.checks import UserError, check_counts
from tests.support import CONF
from tests.support.commands import RunCommand


@pytest.mark.parametrize("name", ["checkpoint", "data.path"])
def test_a_missing_setting_is_named(name: str) -> None:
    settings = OmegaConf.create({"checkpoint": "???", "data": {"path": "???"}})
    with pytest.raises(MissingMandatoryValue) as missing:
        OmegaConf.select(settings, name, throw_on_missing=True)
    assert message_of(missing.value) == f"`{name}` must be set, got nothing. Add {name}=..., which --help describes"


def run_failing(error: BaseException, monkeypatch: pytest.MonkeyPatch, **environment: str) -> int:
    def fail(cfg: object) -> None:
        if isinstance(error, ValueError):
            check_counts(top_k=0)
        raise error

    monkeypatch.setattr("sys.argv", ["evaluate.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for name, setting in environment.items():
        monkeypatch.setenv(name, setting)
    return run_hydra("evaluate", ["checkpoint=base", "hydra.output_subdir=null", "hydra.run.dir=."], CONF, fail)


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (ValueError(), 1, "`top_k` must be a positive integer, got 0\n"),
        (FileNotFoundError(2, "No such file", "x"), 1, "[Errno 2] No such file: 'x'\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_a_users_error_is_one_message(
    error: BaseException,
    status: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_failing(error, monkeypatch) == status
    assert capsys.readouterr().err == message
    for shown, environment in ((KeyError("x"), {}), (ValueError(), {"HYDRA_FULL_ERROR": "1"})):
        assert run_failing(shown, monkeypatch, **environment) == 1
        assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("sweep", [False, True])
def test_a_signal_ends_a_command_and_its_sweep(
    signum: int,
    status: int,
    sweep: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Once SIGTERM during training ended with status 0 and without a word, and a sweep went on."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["evaluate.py"])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in the background
    runs = []

    def task(cfg: object) -> None:
        runs.append(cfg)
        signal.raise_signal(signum)

    before = signal.getsignal(signal.SIGTERM)
    folder = ["-m", "seed=1,2", "hydra.sweep.dir=."] if sweep else ["hydra.output_subdir=null", "hydra.run.dir=."]
    assert run_hydra("evaluate", [*folder, "checkpoint=base"], CONF, task) == status
    assert len(runs) == 1
    assert capsys.readouterr().err == {143: "terminated\n", 130: "interrupted\n"}[status]
    assert signal.getsignal(signal.SIGTERM) == before


def test_sigterm_ends_a_training_that_is_not_marked_finished(
    small_job: tuple[str, ...], run_command: RunCommand, tmp_path: Path
) -> None:
    """Lightning catches what a signal raises; once the command went on and ended with status 0."""
    signalled = ("+callbacks.signal._target_=tests.support.stopping.SignalInEpoch", "+callbacks.signal.epoch=1")
    run = (*small_job, *signalled, "~ablations.mlp", f"hydra.run.dir={tmp_path}")
    done = run_command("train.py", *run, status=143)
    assert done.stderr.splitlines()[-1] == "terminated"
    assert (tmp_path / "gatv2" / "checkpoints" / "last.ckpt").is_file()
    assert not json.loads((tmp_path / "gatv2" / "manifest.json").read_text())["finished"]


def test_a_forked_process_ends_by_sigterm_as_usual(tmp_path: Path) -> None:
    with terminating() as signals:
        if (child := os.fork()) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    assert signals == []


def test_a_sweep_shows_the_error_of_its_run(run_command: RunCommand, tmp_path: Path) -> None:
    """Once the summary of the sweep failed too, and only its error was shown."""
    done = run_command("train.py", "-m", "seed=1,2", "data.path=nowhere.json", f"hydra.sweep.dir={tmp_path}", status=1)
    assert "nowhere.json: no such file" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "code",
    [
        "int('x')",
        "list(zip([1], [1, 2], strict=True))",
        "[].remove(1)",
    ],
)
def test_a_value_error_of_our_own_bug_is_not_the_users(code: str) -> None:
    """Once any ValueError whose last frame is ours was shown as the user's, without a traceback."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        exec(code, {"__name__": "graphrerank.operators.bm25"})
    assert not is_users(caught.value)
    assert is_users(UserError("`top_k` must be positive"))


def test_hydras_advice_does_not_lead_into_the_next_error(run_command: RunCommand) -> None:
    done = run_command("train.py", "sede=3", status=1)
    assert done.stderr == "unknown setting `sede`, did you mean seed?\n"
    assert "+sede" not in done.stderr
    assert "HYDRA_FULL_ERROR" not in done.stderr


def test_what_hydra_could_not_build_is_told_by_its_cause() -> None:
    error = InstantiationException("Error in call to target")
    error.__cause__ = ValueError("`path` must be a folder")
    assert message_of(error) == "`path` must be a folder"


@pytest.mark.parametrize("url", ["postgresql://me:hunter2@host/db", "postgresql://me@host/db?password=hunter2"])
def test_a_password_is_refused_before_hydra_writes_it(url: str) -> None:
    with pytest.raises(ValueError, match=r"`encoder\.base_url` must not contain a password") as caught:
        read_arguments(["encoder=endpoint", f"+encoder.base_url={url}"])
    assert "hunter2" not in str(caught.value)


def test_a_sweep_goes_on_after_a_failed_run_and_reports_every_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    seeds = []

    def task(cfg: DictConfig) -> None:
        seeds.append(cfg.seed)
        if cfg.seed != 2:
            raise UserError(f"`seed` must be 2, got {cfg.seed}")
        model = tmp_path / "sweep" / "1" / "gatv2"
        model.mkdir(parents=True)
        best = {"measure": "val/ndcg@10", "mode": "max", "score": 0.5}
        (model / MANIFEST).write_text(json.dumps({"name": "gatv2", "finished": True, "validation": best}))

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    assert run_hydra("train", ["-m", "seed=1,2,3", f"hydra.sweep.dir={tmp_path / 'sweep'}"], CONF, task) == 1
    printed = capsys.readouterr()
    assert seeds == [1, 2, 3]
    assert "val/ndcg@10 0.5000  1/gatv2  seed=2" in printed.out
    assert "run 0 failed (seed=1):\n`seed` must be 2, got 1\n" in printed.err
    assert "run 2 failed (seed=3):\n`seed` must be 2, got 3\n" in printed.err
    assert "Traceback" not in printed.err
