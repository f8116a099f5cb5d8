"""Spider's files, made small."""

from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.dataset import Dataset
from tests.support.raw import build

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
FILES: dict[str, Any] = {
    "spider/tables.json": [PETS],
    "spider/train_spider.json": [
        {"db_id": "pet_shop", "question": "Who?", "query": "SELECT T1.Name FROM owner AS T1 JOIN has_pet AS T2"},
        {"db_id": "pet_shop", "question": "Which kinds?", "query": 'SELECT Kind FROM "pet kinds"'},
        {"db_id": "pet_shop", "question": "Which dogs?", "query": "SELECT * FROM dogs"},
    ],
    "spider/test.json": [{"db_id": "cars", "question": "Whose car?", "query": "SELECT name FROM owner"}],
    "spider/test_tables.json": [PETS, CARS],
}  # fmt: skip


def test_tables_questions_and_foreign_keys(tmp_path: Path) -> None:
    built = build(tmp_path, "spider", FILES)
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


def test_only_the_databases_of_the_test_split(tmp_path: Path) -> None:
    files = {name: content for name, content in FILES.items() if "test" in name}
    built = build(tmp_path, "spider", files, only_asked=True)
    assert {doc["metadata"]["db_id"] for doc in built.documents} == {"cars"}


def test_two_schemas_of_one_database_are_refused(tmp_path: Path) -> None:
    other = CARS | {"db_id": "pet_shop"}
    with pytest.raises(ValueError, match="found two different ones of 'pet_shop'"):
        build(tmp_path, "spider", FILES | {"spider/test_tables.json": [other]})
    assert not (tmp_path / "out").exists()


def test_a_schema_of_another_form_is_refused(tmp_path: Path) -> None:
    broken = PETS | {"column_types": ["text"]}
    with pytest.raises(ValueError, match=r"tables\.json, entry 0: needed a database as in Spider's"):
        build(tmp_path, "spider", FILES | {"spider/tables.json": [broken]})
    with pytest.raises(ValueError, match=r"train_spider\.json, entry 0: needed an object with question, db_id, query"):
        build(tmp_path, "spider", FILES | {"spider/train_spider.json": [{"question": "?"}]})
    with pytest.raises(ValueError, match=r"exactly one file tables\.json or test_tables\.json"):
        build(tmp_path / "none", "spider", {"a.json": "[]"})
