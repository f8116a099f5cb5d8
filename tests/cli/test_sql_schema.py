"""Commands on a user's own database."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import measures_of
from tests.support.folders import write_dataset

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is optional")


def test_train_and_evaluate_on_a_database(run_command: Any, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    database, folder, run, out = (tmp_path / name for name in ("my.db", "questions", "run", "out"))
    with sqlite3.connect(database) as connection:
        for i in range(8):
            connection.execute(f"CREATE TABLE thing{i} (id INTEGER PRIMARY KEY, other INTEGER REFERENCES thing{i + 1})")
        connection.execute("CREATE TABLE thing8 (id INTEGER PRIMARY KEY)")
    connection.close()
    splits = {"train": range(4), "val": range(4, 6), "test": range(6, 8)}
    write_dataset(
        folder,
        queries=[{"_id": f"q{i}", "text": f"which thing{i}?"} for i in range(8)],
        **{split: [(f"q{i}", f"thing{j}") for i in asked for j in (i, i + 1)] for split, asked in splits.items()},
    )
    data = ["data=sql_schema", f"data.url=sqlite:///{database}", f"data.path={folder}"]
    done = run_command("train.py", *data, *small_encoder, "features=scores", "debug=fast", f"hydra.run.dir={run}")
    assert "9 nodes, 8 edges (foreign keys 8)" in done.stdout
    done = run_command("evaluate.py", f"checkpoint={run}", *small_encoder, *data, f"hydra.run.dir={out}")
    assert measures_of(out) == measures_of(run)
    named = run_command("evaluate.py", f"checkpoint={run}", *small_encoder, "datasets=[sql_schema]", status=1)
    assert "if you trust it, name it yourself: data.url=" in named.stderr  # an address in a manifest is not followed
