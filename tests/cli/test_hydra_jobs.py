"""Errors of commands, as the user reads them."""

import pytest
from hydra.errors import InstantiationException

from graphrerank.checks import check_counts
from graphrerank.cli import hydra_jobs
from graphrerank.cli.hydra_jobs import run_hydra
from tests.support import CONF
from tests.support.commands import RunCommand


def run_failing(error: BaseException, monkeypatch: pytest.MonkeyPatch, **environment: str) -> int:
    def fail(cfg: object) -> None:
        if isinstance(error, ValueError):
            check_counts(top_k=0)
        raise error

    monkeypatch.setitem(hydra_jobs.TASKS, "evaluate", fail)
    monkeypatch.setattr("sys.argv", ["evaluate.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    for name, setting in environment.items():
        monkeypatch.setenv(name, setting)
    return run_hydra("evaluate", ["checkpoint=base", "hydra.output_subdir=null", "hydra.run.dir=."], CONF)


def test_a_users_error_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert run_failing(ValueError(), monkeypatch) == 1
    assert capsys.readouterr().err == "`top_k` must be a positive integer, got 0\n"
    assert run_failing(FileNotFoundError(2, "No such file", "x"), monkeypatch) == 1
    assert capsys.readouterr().err == "[Errno 2] No such file: 'x'\n"
    assert run_failing(KeyboardInterrupt(), monkeypatch) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_an_error_of_ours_has_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: object
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert run_failing(KeyError("x"), monkeypatch) == 1
    assert "Traceback" in capsys.readouterr().err
    assert run_failing(ValueError(), monkeypatch, HYDRA_FULL_ERROR="1") == 1
    assert "Traceback" in capsys.readouterr().err


def test_hydras_advice_does_not_lead_into_the_next_error(run_command: RunCommand) -> None:
    done = run_command("train.py", "sede=3")
    assert done.returncode == 1
    assert "Key 'sede' not in 'TrainConfig'" in done.stderr
    assert "+sede" not in done.stderr
    assert "HYDRA_FULL_ERROR" not in done.stderr


def test_a_setting_of_a_group_that_was_not_chosen_names_the_choice(run_command: RunCommand) -> None:
    done = run_command("evaluate.py", "checkpoint=base", "datasets=[attack]", "data.mentions=true")
    assert done.returncode == 1
    assert done.stderr.rstrip().endswith("beside it: data=folder data.path=DIR data.mentions=...")


def test_what_hydra_could_not_build_is_told_by_its_cause() -> None:
    error = InstantiationException("Error in call to target")
    error.__cause__ = ValueError("`path` must be a folder")
    assert hydra_jobs.message_of(error) == "`path` must be a folder"
