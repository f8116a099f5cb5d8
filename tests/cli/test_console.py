import ast
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

import graphrerank
from graphrerank.cli.console import closed_pipes_ignored, records_shown
from graphrerank.utils.progress import advance, progress_bar

PACKAGE = Path(graphrerank.__file__).parent
LOGGER = logging.getLogger("graphrerank.somewhere")


def test_results_go_to_stdout_and_warnings_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with records_shown():
        LOGGER.debug("detail")
        LOGGER.info("%s passages", 3)
        LOGGER.warning("no edges")
    assert capsys.readouterr() == ("3 passages\n", "no edges\n")


def test_nothing_is_shown_outside_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with records_shown():
        pass
    LOGGER.info("3 passages")
    LOGGER.warning("no edges")
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_a_command_writes_a_line_every_twenty_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 19.0, 21.0, 30.0, 42.0])
    with records_shown(), progress_bar("pairs", 4000, clock=lambda: next(seconds)):
        advance(500)
        advance(500)
        with progress_bar("a part", 4):
            advance(500)
        advance(1500)
    assert (
        capsys.readouterr().err
        == "pairs: 1,000 of 4,000 (25%), about 63 s left\npairs: 3,000 of 4,000 (75%), about 14 s left\n"
    )


def test_a_service_shows_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 30.0])
    with records_shown(progress=False), progress_bar("pairs", 2, clock=lambda: next(seconds)):
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_only_the_command_line_prints() -> None:
    """Tables are printed by functions whose names say so, where an argument asks for it."""
    printing = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    }
    assert {name for name in printing if not name.startswith("cli/")} == set()


def test_a_closed_pipe_is_success() -> None:
    """Each command writes through :func:`main`: after `| head` has gone, it prints into nothing and ends with 0."""
    script = "from graphrerank.cli.main import main; import sys; [main(['--help']) for _ in range(99)]; sys.exit(0)"
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = subprocess.run([sys.executable, "-c", script], stdout=pipe, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_log_records_into_a_closed_pipe_do_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with closed_pipes_ignored(), records_shown():
            LOGGER.info("3 passages")
            sys.stdout.writelines(["more\n"])
        assert sys.stdout is pipe
