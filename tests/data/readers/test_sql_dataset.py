import json
import sqlite3
from pathlib import Path

import pytest
import torch

from graphrerank.data.readers.sql_dataset import load_sql_dataset, load_sql_schema

HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute('CREATE TABLE "order" (id INTEGER, customer INTEGER REFERENCES customer(id))')
        connection.execute("CREATE TABLE region (id INTEGER)")
    connection.close()
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    folder = tmp_path / "questions"
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": "q1", "text": "Who orders most?"}, {"_id": "q2", "text": "Which regions?"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (folder / "qrels" / "test.tsv").write_text(f"{HEADER}q1\tcustomer\t1\nq1\torder\t1\n")
    (folder / "qrels" / "train.tsv").write_text(f"{HEADER}q2\tregion\t1\n")
    return folder


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_tables_questions_and_judgements(database: Path, questions: Path, prefix: str) -> None:
    dataset = load_sql_dataset(f"{prefix}{database}", path=questions, descriptions={"region": "where"}, knn=1)
    graph = load_sql_schema(database, descriptions={"region": "where"})
    assert (dataset.name, dataset.graph.node_ids, dataset.graph.texts) == ("questions", graph.node_ids, graph.texts)
    assert torch.equal(dataset.graph.indices, graph.indices)
    qrels = dataset.split("test")
    judged = [(dataset.query_ids[q], graph.node_ids[n]) for q, n in zip(qrels.query, qrels.node, strict=True)]
    assert judged == [("q1", "customer"), ("q1", "order")]
    assert dataset.summary() == (
        "questions: 3 nodes, 1 edges (foreign keys 1), 1 nearest of each to come, queries: test 1, train 1"
    )


def test_splits_are_those_of_a_folder(database: Path, questions: Path) -> None:
    dataset = load_sql_dataset(str(database), path=questions, splits={"val": "test"}, name="shop")
    assert (dataset.name, list(dataset.splits), list(dataset.query_ids)) == ("shop", ["val"], ["q1"])


def test_errors(database: Path, questions: Path, tmp_path: Path) -> None:
    for url in ("postgresql://user:hunter2@127.0.0.1/x", "postgresql://user@127.0.0.1/x?password=hunter2"):
        with pytest.raises(ValueError, match="`url` must not hold a password") as caught:
            load_sql_dataset(url, path=questions)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match=r"nowhere: no such folder; it must hold queries\.jsonl"):
        load_sql_dataset(str(database), path=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"gone\.db: no such file"):
        load_sql_dataset("sqlite:///gone.db", path=questions)
    (questions / "qrels" / "train.tsv").write_text(f"{HEADER}q2\tregions\t1\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: needed a corpus-id of the corpus, found 'regions'"):
        load_sql_dataset(str(database), path=questions)
