"""``graphrerank build NAME --from FILES --out DIR``."""

import json
import sys
from pathlib import Path

import pytest

from graphrerank.cli.main import main
from tests.papers.builders.test_tables import SPIDER as FILES
from tests.support.commands import RunCommand

pytest.importorskip("sqlglot")


def test_a_plain_installation_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Once this was a traceback of ``import yaml``."""
    monkeypatch.delitem(sys.modules, "graphrerank.cli.build", raising=False)
    for name in ("yaml", "sqlglot", "pygit2"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["build", "git", "--from", str(tmp_path), "--out", str(tmp_path / "data")]) == 1
    assert "graphrerank build needs sqlglot, pygit2, yaml, which are not installed" in (err := capsys.readouterr().err)
    assert "pip install 'graphrerank[build]'" in err
    assert err.count("\n") == 1


def test_a_folder_is_built_and_refused_a_second_time(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "raw dir").mkdir()
    for name, content in FILES.items():
        (tmp_path / "raw dir" / Path(name).name).write_text(json.dumps(content))
    files = [str(tmp_path / "raw dir" / f"{name}.json") for name in ("tables", "train_spider")]
    arguments = ("build", "spider", "--from", *files, "--out", str(tmp_path / "spider"))
    done = run_command(*arguments, "--option", "only_asked=true")
    assert done.stdout.splitlines()[:3] == [
        "3 documents, 2 queries, 1 edges",
        "train: 2 judged queries, 3 judgements",
        "dropped 1 x edge: refers to its own table",
    ]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "spider")
    done = run_command(*arguments, status=1)
    assert "`out` must be a new or empty folder" in done.stderr
