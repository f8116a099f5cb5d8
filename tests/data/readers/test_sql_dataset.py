import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.data.readers.sql_dataset import load_sql_dataset
from graphrerank.graphs import CorpusGraph
from tests.support.graphs import named_edges

pytest.importorskip("sqlalchemy", reason="SQLAlchemy is optional")

HEADER = "query-id\tcorpus-id\tscore\n"


SCHEMA = '''
CREATE TABLE "order" (id INTEGER PRIMARY KEY, "customer id" INTEGER REFERENCES Customer(id), parent INTEGER
    REFERENCES "order"(id));
CREATE TABLE customer (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE line (order_id INTEGER, number INTEGER, product TEXT, PRIMARY KEY (order_id, number),
    FOREIGN KEY (order_id) REFERENCES "order"(id));
CREATE TABLE shipment (id INTEGER, order_id INTEGER, number INTEGER, again INTEGER,
    FOREIGN KEY (order_id, number) REFERENCES line(order_id, number), FOREIGN KEY (again) REFERENCES line(order_id));
CREATE TABLE "it's; ""odd""" (x);
CREATE VIEW names AS SELECT name FROM customer;
'''


JOINED = [("customer", "order"), ("line", "order"), ("line", "shipment")]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop #1.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    connection.close()
    return path


def schema(source: str | Path, folder: Path, **settings: Any) -> CorpusGraph:
    """Read a database as a corpus to search in."""
    return load_sql_dataset(str(source), path=folder, **settings).graph


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    folder = tmp_path / "questions"
    (folder / "qrels").mkdir(parents=True)
    queries = [{"_id": "q1", "text": "Who orders most?"}, {"_id": "q2", "text": "Which lines?"}]
    (folder / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    (folder / "qrels" / "test.tsv").write_text(f"{HEADER}q1\tcustomer\t1\nq1\torder\t1\n")
    (folder / "qrels" / "train.tsv").write_text(f"{HEADER}q2\tline\t1\n")
    return folder


@pytest.mark.parametrize("prefix", ["", "sqlite:///"])
def test_tables_questions_and_judgements(database: Path, questions: Path, prefix: str) -> None:
    dataset = load_sql_dataset(f"{prefix}{database}", path=questions, descriptions={"line": "where"}, knn=1)
    graph = schema(database, database.parent, descriptions={"line": "where"})
    assert (dataset.name, dataset.graph.node_ids, dataset.graph.texts) == ("questions", graph.node_ids, graph.texts)
    assert torch.equal(dataset.graph.indices, graph.indices)
    qrels = dataset.split("test")
    judged = [(dataset.query_ids[q], graph.node_ids[n]) for q, n in zip(qrels.query, qrels.node, strict=True)]
    assert judged == [("q1", "customer"), ("q1", "order")]
    counts = "questions: 6 nodes, 3 edges (foreign keys 3), 1 nearest of each to come"
    assert dataset.summary() == f"{counts}, queries: test 1, train 1"


def test_errors(database: Path, questions: Path, tmp_path: Path) -> None:
    for url in ("postgresql://user:hunter2@127.0.0.1/x", "postgresql://user@127.0.0.1/x?password=hunter2"):
        with pytest.raises(ValueError, match="`url` must not hold a password") as caught:
            load_sql_dataset(url, path=questions)
        assert "hunter2" not in str(caught.value)
    with pytest.raises(ValueError, match=r"nowhere: no such folder; it must hold queries\.jsonl"):
        load_sql_dataset(str(database), path=tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"gone\.db: no such file"):
        load_sql_dataset("sqlite:///gone.db", path=questions)
    (questions / "qrels" / "train.tsv").write_text(f"{HEADER}q2\tlines\t1\n")
    with pytest.raises(ValueError, match=r"train\.tsv, line 2: needed an id of the corpus .*, found 'lines'"):
        load_sql_dataset(str(database), path=questions)


def test_tables_become_passages_and_foreign_keys_edges(database: Path, tmp_path: Path) -> None:
    graph = schema(database, tmp_path, descriptions={"customer": "who buys", "customer.name": "full name"})
    assert graph.node_ids == ["customer", 'it\'s; "odd"', "line", "names", "order", "shipment"]
    assert named_edges(graph).keys() == {
        (one, other, "reference") for i, j in JOINED for one, other in ((i, j), (j, i))
    }
    texts = dict(zip(graph.node_ids, graph.texts, strict=True))
    said = "table customer (who buys): columns id (INTEGER), name (TEXT, full name); primary key id"
    assert texts["customer"] == said
    assert texts["line"].endswith("primary key order_id, number")
    assert texts['it\'s; "odd"'] == 'table it\'s; "odd": columns x'
    assert texts["names"] == "table names: columns name (TEXT)"


def test_a_key_to_nowhere_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE a (b INTEGER REFERENCES gone(id))")
    connection.close()
    with pytest.warns(UserWarning, match="table 'a' refers to 'gone', which is not there"):
        graph = schema(tmp_path / "a.db", tmp_path)
    assert graph.num_edges == 0


def test_schema_errors(tmp_path: Path, database: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        schema(tmp_path / "gone.db", tmp_path)
    (tmp_path / "empty.db").touch()
    with pytest.raises(ValueError, match=r"empty\.db: the database has no table or view"):
        schema(tmp_path / "empty.db", tmp_path)
    (tmp_path / "text.db").write_text("not a database, whatever its name says " * 50)
    for source in (str(tmp_path / "text.db"), "nodialect+none://user@127.0.0.1/x"):
        with pytest.raises(ValueError, match=rf"{source[-6:]}: cannot be read: "):
            schema(source, tmp_path)
    with pytest.raises(ValueError, match=r"`descriptions` must name tables .*got 'customer\.nme'"):
        schema(database, tmp_path, descriptions={"customer.nme": "x"})
