"""The console script ``graphrerank``, beside the three scripts."""

import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import graphrerank
from graphrerank.cli.main import HYDRA_JOBS, main, prepare_arguments
from graphrerank.extras import EXTRAS
from tests.support import ROOT


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(
        f"graphrerank {command} " in out for command in ("train", "evaluate", "serve", "demo", "prepare", "doctor")
    )
    assert max(map(len, out.splitlines())) <= 120
    assert main(["--version"]) == 0
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert capsys.readouterr().out == f"graphrerank {version}\n"
    assert graphrerank.__version__ == version


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["trian"], 2, "unknown command 'trian'"),
        (["doctor", "one", "two"], 1, "takes one data set"),
        (["completion", "csh"], 1, "`shell` must be one of"),
        (["prepare", "data=folder"], 1, "needs a folder to write"),
    ],
)
def test_a_mistake_is_one_message(
    arguments: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_a_reader_that_stops_is_no_error() -> None:
    command = f"{sys.executable} -m graphrerank.cli.main --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


def test_prepare_takes_its_folder_first() -> None:
    assert prepare_arguments(["out", "data=folder"]) == ["prepare=out", "data=folder"]
    assert prepare_arguments(["prepare=out"]) == ["prepare=out"]
    assert prepare_arguments(["--help"]) == ["--help"]
    with pytest.raises(ValueError, match="one folder"):
        prepare_arguments(["a", "b"])


@pytest.mark.parametrize("command", [*HYDRA_JOBS, "doctor", "index", "build", "completion"])
def test_help_needs_no_extra(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for module in {name for extra in EXTRAS.values() for name in extra.modules}:
        monkeypatch.setitem(sys.modules, module, None)
    with suppress(SystemExit):  # of argparse
        assert main([command, "--help"]) == 0
    told = capsys.readouterr()
    assert f"graphrerank {command} " in told.out
    assert told.err == ""
    assert command not in HYDRA_JOBS or "  - paths: default" in told.out


def test_a_command_needs_its_extra(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    assert main(["train"]) == 1
    assert "graphrerank train needs lightning" in (told := capsys.readouterr().err)
    assert "pip install 'graphrerank[train]'" in told


@pytest.mark.slow
def test_the_console_script_trains_what_the_script_does(
    tmp_path: Path, small_job: tuple[str, ...], cache: Path
) -> None:
    """From another folder; two processes, which Lightning starts with the same command."""
    script = Path(sys.executable).with_name("graphrerank")
    if not script.exists():
        pytest.skip("the package's console script is not beside this Python")
    devices = ("trainer.devices=2", "trainer.strategy=ddp", "trainer.max_epochs=1", f"paths.cache={cache}")
    command = [str(script), "train", *small_job, *devices, f"hydra.run.dir={tmp_path / 'run'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(tmp_path / "run")
