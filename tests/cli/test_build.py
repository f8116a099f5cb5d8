"""``python evaluate.py build=NAME from=FILES out=DIR``, and what the folder is then good for."""

import json
from pathlib import Path

import pytest

from tests.papers.builders.test_tables import SPIDER as FILES
from tests.support.commands import RunCommand

pytest.importorskip("sqlglot")


def test_a_folder_is_built_and_refused_a_second_time(run_command: RunCommand, tmp_path: Path) -> None:
    (tmp_path / "raw dir").mkdir()
    for name, content in FILES.items():
        (tmp_path / "raw dir" / Path(name).name).write_text(json.dumps(content))
    given = ",".join(str(tmp_path / "raw dir" / f"{name}.json") for name in ("tables", "train_spider"))
    arguments = ("build=spider", f"from={given}", f"out={tmp_path / 'spider'}", f"hydra.run.dir={tmp_path / 'run'}")
    done = run_command("evaluate.py", *arguments, "options.only_asked=true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == [
        "3 documents, 2 queries, 1 edges",
        "train: 2 judged queries, 3 judgements",
        "dropped 1 x edge: refers to its own table",
    ]
    assert done.stdout.splitlines()[-1] == str(tmp_path / "spider")
    done = run_command("evaluate.py", *arguments)
    assert done.returncode == 1
    assert "`out` must be a new folder" in done.stderr


def test_what_is_missing_is_named(run_command: RunCommand, tmp_path: Path) -> None:
    run = f"hydra.run.dir={tmp_path / 'run'}"
    done = run_command("evaluate.py", "build=spider", f"out={tmp_path / 'out'}", run)
    assert "`from` must name spider_data.zip, or tables.json with" in done.stderr
    done = run_command("evaluate.py", "build=spider", "from=spider_data.zip", run)
    assert "`out` must name the folder to write, got null" in done.stderr
