"""The console script ``graphrerank`` and its commands, and the scripts that call it."""

import runpy
import signal
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import graphrerank
from graphrerank.cli import schema
from graphrerank.cli.main import commands, main, settings
from graphrerank_documents import command as index
from tests.support import ROOT


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"graphrerank {command} " in out for command in commands())
    assert max(map(len, out.splitlines())) <= 120
    assert main(["--version"]) == 0
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert capsys.readouterr().out == f"graphrerank {version}\n"
    assert graphrerank.__version__ == version


def test_the_package_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["graphrerank", "trian"])
    with pytest.raises(SystemExit) as end:
        runpy.run_module("graphrerank", run_name="__main__")
    assert end.value.code == 2


def test_sigterm_ends_any_command_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once ``index`` and ``build`` died without a word."""

    def work(arguments: object) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None  # as C extensions do
        return 0

    monkeypatch.setattr(index, "main", work)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        assert main(["index", "docs", "--out", "data"]) == 143
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err == "terminated\n"


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trian"], 2, "unknown command 'trian'"),
        (["doctor", "one", "two"], 1, "accepts only one dataset, got 'two' in addition"),
        (["train", "base"], 1, "arguments of graphrerank train must be settings (NAME=...), got 'base'"),
        (["completion", "bash", "x"], 2, "unknown command 'completion'"),  # once a TypeError
    ],
)
def test_a_mistake_is_one_message(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_the_first_word_is_the_positional_setting(tmp_path: Path) -> None:
    assert settings("prepare", ["it's", "data=folder"]) == [r"folder='it\'s'", "data=folder"]
    assert settings("doctor", ["attack", "data.edges=auto"]) == ["dataset='attack'", "data='attack'", "data.edges=auto"]
    assert settings("doctor", [str(tmp_path), "data.edges=auto"]) == [
        f"dataset='{tmp_path}'", "data=folder", f"data.path='{tmp_path}'", "data.edges=auto"
    ]  # fmt: skip
    assert settings("train", ["-m", "seed=1,2", "--cfg", "job"]) == ["-m", "seed=1,2", "--cfg", "job"]


def test_a_reader_that_stops_is_no_error() -> None:
    command = f"{sys.executable} -m graphrerank.cli.main --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("command", commands())
def test_help_shows_the_settings_with_their_comments(command: str, run_command) -> None:
    config = commands()[command].config
    if command == "evaluate" or config is None:
        shown = run_command(command, "--help").stdout
    else:
        shown = schema.command_help(config)
    assert config is None or "torch threads" in shown or config == "export"
    assert config is None or "# Checkpoint" in shown or config in ("prepare", "learn")
    assert config is None or "  paths: default" in shown
    assert command != "evaluate" or "pipeline: ea_graphrag" in shown  # of an extension


@pytest.mark.parametrize("command", commands())
def test_help_begins_with_what_the_command_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``demo`` and ``serve`` share their settings, and still each of them shows its own name and examples."""
    with suppress(SystemExit):  # argparse ends the process
        assert main([command, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"usage: graphrerank {command} ")
    if commands()[command].config is not None:
        summary = commands()[command].summary
        assert lines[2] == f"{summary[0].upper()}{summary[1:]}."
        examples = [line for line in lines[: lines.index("Groups, with the choice that is the default:")][3:] if line]
        assert all(line.split()[:2] == ["graphrerank", command] for line in examples[1:] if line.startswith("  gr"))
        assert bool(examples[1:]) == (command != "demo")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("graphrerank tr", "train evaluate serve"),
        ("graphrerank train encoder=mini", "encoder=minilm"),
        ("graphrerank prepare x vec", "vectors="),
        ("graphrerank index do", "train"),
    ],
)
def test_hydra_completes_commands_and_settings(
    line: str, expected: str, run_command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMP_LINE", line)
    assert run_command("-sc", "query=bash").stdout.startswith(expected)
    assert "hydra_bash_completion" in run_command("-sc", "install=bash").stdout


def test_help_and_wrong_arguments_load_no_torch(tmp_path: Path) -> None:
    """One process runs the commands one after another, because its start takes longer than they do."""
    commands = {
        "--help": 0,
        "train --help": 0,
        "evaluate --help": 0,
        "serve --help": 0,
        "serve prot=80": 1,
        "train no_such_setting=1": 1,
        "train seed=x": 1,
        "train data=no_such_data": 1,
    }
    program = f"""
import sys
from graphrerank.cli.main import main
for command in {list(commands)}:
    status = main(command.split())
    print("LOADED", command, "torch" in sys.modules, "lightning" in sys.modules, status, sep=", ")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    lines = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert lines == [f"LOADED, {command}, False, False, {status}" for command, status in commands.items()], done.stderr
