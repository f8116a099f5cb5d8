"""BEAVER's files, made small."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.raw import build

pytest.importorskip("sqlglot")

TABLES: dict[str, Any] = {
    "dw#sep#FAC_BUILDING": {
        "db": "dw", "table_name": "FAC_BUILDING", "column_names": ["BUILDING_KEY"], "column_types": ["varchar"],
        "primary_key": "BUILDING_KEY", "foreign_key": [],
    },
    "dw#sep#FAC_ROOM": {
        "db": "dw", "table_name": "FAC_ROOM", "column_names": ["ROOM", "BUILDING_KEY"],
        "column_types": ["int", "varchar"], "primary_key": ["ROOM"], "foreign_key": [
            {"column_name": "BUILDING_KEY", "referenced_table_name": "dw#sep#fac_building",
             "referenced_column_name": "BUILDING_KEY"},
        ],
    },
}  # fmt: skip


def test_tables_of_the_sql_and_those_that_the_authors_list(tmp_path: Path) -> None:
    questions = [
        {"id": "a", "db": "dw", "question": "Which rooms?", "sql": "SELECT `ROOM` FROM `fac_room`",
         "tables": ["dw#sep#FAC_ROOM"]},
        {"id": "b", "db": "dw", "question": "Where?", "sql": "SELECT 1 FROM FAC_ROOM, FAC_BUILDING",
         "tables": ["dw#sep#FAC_ROOM"]},
    ]  # fmt: skip
    built = build(tmp_path, "beaver", {"dw/dev.json": questions, "dw/dev_tables.json": TABLES})
    assert built.documents[0]["text"] == "table FAC_BUILDING (fac building) in database dw: columns building key"
    assert built.judged("dev") == {
        "beaver-dev-a": ["dw.FAC_ROOM"], "beaver-dev-b": ["dw.FAC_BUILDING", "dw.FAC_ROOM"],
    }  # fmt: skip
    assert built.edges == [["dw.FAC_ROOM", "dw.FAC_BUILDING", "foreign_key", "BUILDING_KEY", "BUILDING_KEY"]]
    assert built.card["dropped"] == {"judgement: the authors list other tables than its SQL": 1}


def test_another_dialect(tmp_path: Path) -> None:
    questions = [{"db": "dw", "question": "Which?", "sql": 'SELECT "ROOM" FROM FAC_ROOM FETCH FIRST 3 ROWS ONLY'}]
    built = build(tmp_path, "beaver", {"dev.json": questions, "dev_tables.json": TABLES}, dialect="oracle")
    assert built.judged("dev") == {"beaver-dev-0": ["dw.FAC_ROOM"]}
    assert built.card["built_by"].endswith("build=beaver options.dialect=oracle")
