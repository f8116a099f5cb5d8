"""BIRD's files, made small: train and dev are told apart by their tables' metadata."""

from pathlib import Path

import pytest

from tests.papers.builders.test_spider import CARS, PETS
from tests.support.raw import build

pytest.importorskip("sqlglot")

QUESTION = {"question": "Who?", "evidence": "a hint", "SQL": "SELECT Name FROM Owner", "db_id": "pet_shop"}


def test_both_splits(tmp_path: Path) -> None:
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


def test_one_split_alone_is_said(tmp_path: Path) -> None:
    built = build(tmp_path, "bird", {"train.json": [QUESTION], "train_tables.json": [PETS]})
    assert built.card["notes"] == ["The files of the split dev were not given."]
    with pytest.raises(ValueError, match=r"exactly one file train_tables\.json, found 0"):
        build(tmp_path / "b", "bird", {"train.json": [QUESTION]})
