"""Training on a folder without judged questions: on drafted ones, which no table presents as users' questions."""

import json
from pathlib import Path

from tests.support.commands import RunCommand
from tests.support.folders import write_films

SMALL = ("features=scores", "encoder=none", "retriever=bm25", "trainer.max_epochs=1", "~ablations.mlp")


def test_the_table_of_a_training_on_drafted_questions(run_command: RunCommand, tmp_path: Path) -> None:
    folder, run = write_films(tmp_path / "films", edges=True, judged=False, questions=False), tmp_path / "run"
    data = ("data=folder", f"data.path={folder}")
    done = run_command("train.py", *data, *SMALL, f"hydra.run.dir={tmp_path / 'none'}", status=1)
    assert "has no judged questions, so there is no split 'train'" in done.stderr
    done = run_command("train.py", *data, "data.drafted=40", *SMALL, f"hydra.run.dir={run}")
    assert f"{folder} has no judged questions, so the table is computed on drafted questions" in done.stderr
    assert "films: 4 drafted questions, not asked by users" in done.stdout
    assert json.loads((run / "metrics.json").read_text())["datasets"]["films"]["drafted"] is True
    assert "drafted questions" in (run / "report.html").read_text()


def test_judged_questions_come_first(run_command: RunCommand, tmp_path: Path) -> None:
    folder = write_films(tmp_path / "films", edges=True, judged=True)
    (folder / "qrels" / "all.tsv").rename(folder / "qrels" / "test.tsv")
    data = ("data=folder", f"data.path={folder}", "data.drafted=40", f"hydra.run.dir={tmp_path / 'run'}")
    done = run_command("train.py", *data, *SMALL)
    assert "films test: 12 queries" in done.stdout
    assert "not asked by users" not in done.stdout
