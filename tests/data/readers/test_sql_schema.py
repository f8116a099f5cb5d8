import sqlite3
from pathlib import Path

import pytest

from graphrerank.data.readers.sql_dataset import load_sql_schema
from graphrerank.graphs import CorpusGraph

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


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop #1.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(SCHEMA)
    connection.close()
    return path


def edges(graph: CorpusGraph) -> list[tuple[str, str]]:
    return [
        (graph.node_ids[i], graph.node_ids[j])
        for i in range(graph.num_nodes)
        for j in graph.indices[graph.indptr[i] : graph.indptr[i + 1]].tolist()
        if i < j
    ]


def test_tables_become_passages_and_foreign_keys_edges(database: Path) -> None:
    graph = load_sql_schema(database, descriptions={"customer": "who buys", "customer.name": "full name"})
    assert graph.node_ids == ["customer", 'it\'s; "odd"', "line", "names", "order", "shipment"]
    assert edges(graph) == [("customer", "order"), ("line", "order"), ("line", "shipment")]
    texts = dict(zip(graph.node_ids, graph.texts, strict=True))
    said = "table customer (who buys): columns id (INTEGER), name (TEXT, full name); primary key id"
    assert texts["customer"] == said
    assert texts["line"].endswith("primary key order_id, number")
    assert texts['it\'s; "odd"'] == 'table it\'s; "odd": columns x'
    assert texts["names"] == "table names: columns name (TEXT)"


def test_against_sqlalchemy(database: Path) -> None:
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is optional")
    ours, theirs = load_sql_schema(str(database)), load_sql_schema(f"sqlite:///{database}")
    assert ours.node_ids == theirs.node_ids
    assert edges(ours) == edges(theirs)
    ordinary = [i for i, name in enumerate(ours.node_ids) if "odd" not in name]  # a column without a type is NULL there
    assert [ours.texts[i] for i in ordinary] == [theirs.texts[i] for i in ordinary]


def test_a_key_to_nowhere_is_left_out_with_a_warning(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.db") as connection:
        connection.execute("CREATE TABLE a (b INTEGER REFERENCES gone(id))")
    connection.close()
    with pytest.warns(UserWarning, match="table 'a' refers to 'gone', which is not there"):
        graph = load_sql_schema(tmp_path / "a.db")
    assert graph.num_edges == 0


def test_the_file_is_not_written(database: Path) -> None:
    before = database.read_bytes(), sorted(database.parent.iterdir())
    load_sql_schema(database)
    assert (database.read_bytes(), sorted(database.parent.iterdir())) == before


def test_errors(tmp_path: Path, database: Path) -> None:
    with pytest.raises(ValueError, match="no such file"):
        load_sql_schema(tmp_path / "gone.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(ValueError, match=r"empty\.db: the database has no table or view"):
        load_sql_schema(tmp_path / "empty.db")
    (tmp_path / "text.db").write_text("not a database, whatever its name says " * 50)
    with pytest.raises(ValueError, match=r"text\.db: cannot be read as a SQLite database"):
        load_sql_schema(tmp_path / "text.db")
    with pytest.raises(ValueError, match=r"`descriptions` must name tables .*got 'customer\.nme'"):
        load_sql_schema(database, descriptions={"customer.nme": "x"})


def test_a_url_error_hides_the_password() -> None:
    pytest.importorskip("sqlalchemy", reason="SQLAlchemy is optional")
    with pytest.raises(ValueError, match=r"user:\*\*\*@") as caught:
        load_sql_schema("nodialect+none://user:hunter2@127.0.0.1/x")
    assert "hunter2" not in str(caught.value)
