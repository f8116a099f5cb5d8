"""The files of Spider, BIRD and BEAVER, made small."""

from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.dataset import Dataset
from graphrerank_papers.builders.tables import UnreadableSqlError, gold_tables
from tests.support.raw import Built, build

pytest.importorskip("sqlglot")

PETS: dict[str, Any] = {
    "db_id": "pet_shop",
    "table_names_original": ["Owner", "Has_Pet", "pet kinds"],
    "table_names": ["owner", "has pet", "pet kinds"],
    "column_names_original": [[-1, "*"], [0, "Own_ID"], [0, "Name"], [1, "Own_ID"], [1, "Boss"], [2, "Kind"]],
    "column_names": [[-1, "*"], [0, "owner id"], [0, "name"], [1, "owner id"], [1, "boss"], [2, "kind"]],
    "column_types": ["text", "number", "text", "number", "number", "text"],
    "primary_keys": [1],
    "foreign_keys": [[3, 1], [4, 3]],
}
CARS: dict[str, Any] = PETS | {"db_id": "cars", "table_names_original": ["owner", "car", "kind"]}
SPIDER: dict[str, Any] = {
    "spider/tables.json": [PETS],
    "spider/train_spider.json": [
        {"db_id": "pet_shop", "question": "Who?", "query": "SELECT T1.Name FROM owner AS T1 JOIN has_pet AS T2"},
        {"db_id": "pet_shop", "question": "Which kinds?", "query": 'SELECT Kind FROM "pet kinds"'},
        {"db_id": "pet_shop", "question": "Which dogs?", "query": "SELECT * FROM dogs"},
    ],
    "spider/test.json": [{"db_id": "cars", "question": "Whose car?", "query": "SELECT name FROM owner"}],
    "spider/test_tables.json": [PETS, CARS],
}  # fmt: skip


def test_spiders_tables_questions_and_foreign_keys(tmp_path: Path) -> None:
    built = build(tmp_path, "spider", SPIDER)
    assert [doc["_id"] for doc in built.documents][:4] == [
        "pet_shop.Owner", "pet_shop.Has_Pet", "pet_shop.pet kinds", "cars.owner",
    ]  # fmt: skip
    first = built.documents[0]
    assert first["title"] == "owner"
    assert first["text"] == "table Owner (owner) in database pet shop: columns owner id, name"
    assert first["metadata"]["primary_key"] == ["Own_ID"]
    assert built.judged("train") == {
        "spider-train-0": ["pet_shop.Has_Pet", "pet_shop.Owner"], "spider-train-1": ["pet_shop.pet kinds"],
    }  # fmt: skip
    assert built.judged("test") == {"spider-test-0": ["cars.owner"]}
    assert built.edges[0] == ["pet_shop.Has_Pet", "pet_shop.Owner", "foreign_key", "Own_ID", "Own_ID"]
    assert [(each["kind"], each["id"], each["detail"]) for each in built.dropped] == [
        ("query", "spider-train-2", "dogs"),
        ("edge", "pet_shop.Has_Pet.Boss -> Has_Pet.Own_ID", ""),
        ("edge", "cars.car.Boss -> car.Own_ID", ""),
    ]
    assert "train_others, dev" in built.card["notes"][0]
    dataset = Dataset.from_folder(built.folder)
    assert (dataset.graph.num_nodes, len(dataset.query_ids), sorted(dataset.splits)) == (6, 3, ["test", "train"])
    files = {name: content for name, content in SPIDER.items() if "test" in name}
    built = build(tmp_path / "asked", "spider", files, only_asked=True)
    assert {doc["metadata"]["db_id"] for doc in built.documents} == {"cars"}


QUESTION = {"question": "Who?", "evidence": "a hint", "SQL": "SELECT Name FROM Owner", "db_id": "pet_shop"}


def test_bird_has_two_splits(tmp_path: Path) -> None:
    dev = QUESTION | {"db_id": "cars", "difficulty": "simple", "question_id": 7}
    files = {
        "dev_20240627/dev.json": [dev],
        "dev_20240627/dev_tables.json": [CARS | {"primary_keys": [[1, 2], 3]}],
        "train/train.json": [QUESTION],
        "train/train_tables.json": [PETS],
    }
    built = build(tmp_path, "bird", files)
    assert [(doc["_id"], doc["metadata"]["split"]) for doc in built.documents][2:4] == [
        ("cars.kind", "dev"), ("pet_shop.Owner", "train"),
    ]  # fmt: skip
    assert built.documents[0]["metadata"]["primary_key"] == ["Own_ID", "Name"]
    assert [query["metadata"] for query in built.queries] == [
        {"db_id": "pet_shop", "sql": QUESTION["SQL"], "evidence": "a hint", "difficulty": None},
        {"db_id": "cars", "sql": QUESTION["SQL"], "evidence": "a hint", "difficulty": "simple"},
    ]
    assert built.judged("dev") == {"bird-dev-0": ["cars.owner"]}
    assert built.judged("train") == {"bird-train-0": ["pet_shop.Owner"]}


BEAVER_TABLES: dict[str, Any] = {
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


def test_beavers_tables_of_the_sql_and_those_that_the_authors_list(tmp_path: Path) -> None:
    questions = [
        {"id": "a", "db": "dw", "question": "Which rooms?", "sql": "SELECT `ROOM` FROM `fac_room`",
         "tables": ["dw#sep#FAC_ROOM"]},
        {"id": "b", "db": "dw", "question": "Where?", "sql": "SELECT 1 FROM FAC_ROOM, FAC_BUILDING",
         "tables": ["dw#sep#FAC_ROOM"]},
    ]  # fmt: skip
    built = build(tmp_path, "beaver", {"dw/dev.json": questions, "dw/dev_tables.json": BEAVER_TABLES})
    assert built.documents[0]["text"] == "table FAC_BUILDING (fac building) in database dw: columns building key"
    assert built.judged("dev") == {
        "beaver-dev-a": ["dw.FAC_ROOM"], "beaver-dev-b": ["dw.FAC_BUILDING", "dw.FAC_ROOM"],
    }  # fmt: skip
    assert built.edges == [["dw.FAC_ROOM", "dw.FAC_BUILDING", "foreign_key", "BUILDING_KEY", "BUILDING_KEY"]]
    assert built.card["dropped"] == {"judgement: the authors list other tables than its SQL": 1}
    questions = [{"db": "dw", "question": "Which?", "sql": 'SELECT "ROOM" FROM FAC_ROOM FETCH FIRST 3 ROWS ONLY'}]
    built = build(
        tmp_path / "oracle", "beaver", {"dev.json": questions, "dev_tables.json": BEAVER_TABLES}, dialect="oracle"
    )
    assert built.judged("dev") == {"beaver-dev-0": ["dw.FAC_ROOM"]}
    assert built.card["built_by"].endswith("build beaver --option dialect=oracle")


REPOSITORY: dict[str, Any] = {  # the form of its repository: no names in words, no keys
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
         "mapping": {"built": ["FCLT_BUILDING.DATE_BUILT"]}},
        {"question": "Which hosts?", "db_id": "nova", "sql": "SELECT host FROM services", "mapping": {}},
    ],
}  # fmt: skip


def test_beavers_repository(tmp_path: Path) -> None:
    built = build(tmp_path / "plain", "beaver", REPOSITORY, dialect="oracle")
    text = "table FCLT_BUILDING (fclt building) in database dw: columns fclt building key, date built"
    assert built.documents[1]["text"] == text
    assert built.judged("dev") == {"beaver-dev-0": ["dw.FCLT_BUILDING", "dw.FCLT_ROOMS"]}
    assert not (built.folder / "edges.tsv").exists()
    assert built.card["dropped"] == {"query: its SQL asks a database without a schema": 1}


NAMES = ["Singer", "Song", "concert", "order details", "main.log", "audit.log", "sales.Order"]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT T1.name FROM singer AS T1 JOIN song AS T2 ON T1.id = T2.singer_id;", "Singer Song"),
        ("SELECT 1 FROM singer WHERE id IN (SELECT id FROM song WHERE x > (SELECT avg(x) FROM concert))",
         "Singer Song concert"),
        ("SELECT * FROM (SELECT id FROM singer) AS song", "Singer"),
        ("SELECT EXISTS(SELECT 1 FROM concert)", "concert"),
        # a name of a WITH clause, which later ones see, and which hides a table of the same name
        ("WITH song AS (SELECT * FROM singer), b AS (SELECT * FROM song) SELECT * FROM b JOIN song",
         "Singer"),
        # but not within its own query, unless it is recursive
        ("WITH song AS (SELECT * FROM song) SELECT * FROM SONG", "Song"),
        ("WITH RECURSIVE song AS (SELECT * FROM singer UNION ALL SELECT * FROM song) SELECT * FROM song", "Singer"),
        # nor outside of the query that it belongs to
        ("SELECT * FROM (WITH song AS (SELECT * FROM singer) SELECT * FROM song) AS a JOIN song USING (id)",
         "Singer Song"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM song) SELECT * FROM b", None),
        ('SELECT * FROM "order details" JOIN `singer` JOIN [SONG]', "order details|Singer|Song"),
        ("SELECT * FROM audit.log", "audit.log"),
        ("SELECT * FROM warehouse.sales.\"order\"", "sales.Order"),
        ("SELECT * FROM json_each('[1]') AS j JOIN singer ON singer.id = j.value", "Singer"),
    ],
)  # fmt: skip
def test_tables_of_a_query(sql: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(UnreadableSqlError, match="names a table that its database does not have: b"):
            gold_tables(sql, NAMES)
    else:
        assert gold_tables(sql, NAMES) == sorted(expected.split("|" if "|" in expected else " "))


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("mysql", "SELECT `Singer`.`name` FROM `singer` STRAIGHT_JOIN song LIMIT 5, 10"),
        ("postgres", 'SELECT DISTINCT ON (s.id) s.name::text FROM "Singer" s, LATERAL (SELECT * FROM song) t'),
        ("oracle", "SELECT name FROM singer s, song t WHERE s.id = t.id(+) AND EXISTS (SELECT 1 FROM dual)"),
        ("tsql", "SELECT TOP 3 * FROM [dbo].[Singer] s CROSS APPLY (SELECT * FROM Song) t"),
        ("bigquery", "SELECT * FROM `Singer` s, UNNEST([1, 2]) AS n JOIN `Song` USING (id)"),
        ("snowflake", "SELECT * FROM singer QUALIFY row_number() OVER (ORDER BY id) IN (SELECT id FROM song)"),
        ("duckdb", "FROM singer SELECT * WHERE id IN (SELECT id FROM song)"),
    ],
)
def test_dialects(dialect: str, sql: str) -> None:
    assert gold_tables(sql, NAMES, dialect=dialect) == ["Singer", "Song"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM singr", "names a table that its database does not have: singr"),
        ("SELECT * FROM log", r"may be one of several: log of \['audit.log', 'main.log'\]"),
        ("SELECT FROM WHERE (", "cannot be parsed"),
        ("SELECT 1", "reads no table"),
        ("", "is not one query"),
        ("DELETE FROM singer", "is not one query"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM singer", "cannot be parsed"),
        (" " * 1_000_001, "is too long"),
    ],
)
def test_nothing_is_guessed(sql: str, reason: str) -> None:
    with pytest.raises(UnreadableSqlError, match=reason):
        gold_tables(sql, NAMES)
    with pytest.raises(ValueError, match="`dialect` must be one of"):
        gold_tables(sql, NAMES, dialect="klingon")


@pytest.mark.parametrize(("name", "queries", "same"), [("spider", 8034, 8033), ("bird", 8135, 8135)])
def test_against_the_judgements_of_the_folders(datasets: Path, name: str, queries: int, same: int) -> None:
    given = Built(datasets / name, {})
    tables: dict[str, list[str]] = {}
    for doc in given.documents:
        tables.setdefault(doc["metadata"]["db_id"], []).append(doc["metadata"]["table"])
    judged = {
        q: docs for path in (datasets / name / "qrels").glob("*.tsv") for q, docs in given.judged(path.stem).items()
    }
    equal, failed = 0, []
    for query in given.queries:
        base = query["metadata"]["db_id"]
        try:
            gold = gold_tables(query["metadata"]["sql"], tables[base])
        except UnreadableSqlError:
            failed.append(query["_id"])
        else:
            equal += {f"{base}.{table}" for table in gold} == set(judged[query["_id"]])
    assert (len(judged), equal) == (queries, same)
    assert failed == (["spider-train-3153"] if name == "spider" else [])  # names a table that is not there
