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


REPOSITORY: dict[str, Any] = {  # the form of its repository: no names in words, no keys; joins in a file of their own
    "dev_tables.json": {
        f"dw#sep#{table}": {"db_id": "dw", "table_name_original": table, "column_names_original": columns,
                            "column_types": ["VARCHAR2"] * len(columns)}
        for table, columns in {"FCLT_ROOMS": ["FCLT_ROOM_KEY", "FCLT_BUILDING_KEY"],
                               "FCLT_BUILDING": ["FCLT_BUILDING_KEY", "DATE_BUILT"], "CIP": ["PROGRAM_CODE"]}.items()
    },
    "dev.json": [
        {"question": "Which buildings were built before 1950?", "db_id": "dw",
         "sql": "SELECT DISTINCT b.FCLT_BUILDING_KEY FROM (SELECT * FROM fclt_building WHERE extract(year FROM "
                "TO_DATE(date_built, 'MM/DD/YYYY')) < 1950) b JOIN fclt_rooms r ON r.FCLT_BUILDING_KEY = "
                "b.FCLT_BUILDING_KEY FETCH FIRST 5 ROWS ONLY;",
         "mapping": {"built": ["FCLT_BUILDING.DATE_BUILT"]},
         "join_keys": [["FCLT_ROOMS.FCLT_BUILDING_KEY", "FCLT_BUILDING.FCLT_BUILDING_KEY"]]},
        {"question": "Which hosts?", "db_id": "nova", "sql": "SELECT host FROM services", "mapping": {},
         "join_keys": []},
    ],
    "dw_join_keys.json": [
        ["FCLT_ROOMS.FCLT_BUILDING_KEY", "FCLT_BUILDING.FCLT_BUILDING_KEY"],
        ["FCLT_BUILDING.FCLT_BUILDING_KEY", "FCLT_ROOMS.FCLT_BUILDING_KEY"],
        ["FCLT_ROOMS.FCLT_ROOM_KEY", "MOIRA.ROOM"],
    ],
}  # fmt: skip


def test_the_form_of_the_repository(tmp_path: Path) -> None:
    built = build(tmp_path / "plain", "beaver", REPOSITORY, dialect="oracle")
    text = "table FCLT_BUILDING (fclt building) in database dw: columns fclt building key, date built"
    assert built.documents[1]["text"] == text
    assert built.judged("dev") == {"beaver-dev-0": ["dw.FCLT_BUILDING", "dw.FCLT_ROOMS"]}
    assert not (built.folder / "edges.tsv").exists()  # joins of the questions are labels: only if asked for
    assert built.card["dropped"] == {"query: its SQL asks a database without a schema": 1}


def test_joins_of_the_questions_only_if_asked_for(tmp_path: Path) -> None:
    built = build(tmp_path, "beaver", REPOSITORY, join_keys=True)
    key = "FCLT_BUILDING_KEY"
    assert built.edges == [["dw.FCLT_ROOMS", "dw.FCLT_BUILDING", "join_key", key, key]]
    assert built.card["dropped"]["edge: refers to a table that is not there"] == 1
    assert "they know labels" in built.card["notes"][0]
    with pytest.raises(ValueError, match=r"dw_join_keys\.json: needed a list of pairs"):
        build(tmp_path / "broken", "beaver", REPOSITORY | {"dw_join_keys.json": [["A"]]}, join_keys=True)
