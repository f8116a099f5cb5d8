"""A database as a data set: the tables that a question needs."""

import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphrerank.checks import UserError
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.judgements import Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.extras import optional
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import REFERENCE
from graphrerank.passwords import check_no_password, without_passwords


@dataclass(frozen=True)
class Table:
    """A table or view; columns and keys in the database's order."""

    name: str
    columns: Sequence[tuple[str, str, str]]  # name, declared type and description; the latter two may be empty
    primary_key: Sequence[str] = ()
    references: Sequence[str] = ()  # names of the tables that its foreign keys refer to
    description: str = ""

    def text(self, descriptions: Mapping[str, str]) -> str:
        """Return the table as a passage, with descriptions by ``table`` or ``table.column`` before its comments.

        Example:
            >>> Table("pet", [("id", "INTEGER", ""), ("owner", "TEXT", "full name")], ["id"]).text({})
            'table pet: columns id (INTEGER), owner (TEXT, full name); primary key id'
        """
        columns = []
        for name, kind, said in self.columns:
            details = ", ".join(filter(None, (kind, descriptions.get(f"{self.name}.{name}", said))))
            columns.append(f"{name} ({details})" if details else name)
        about = descriptions.get(self.name, self.description)
        key = f"; primary key {', '.join(self.primary_key)}" if self.primary_key else ""
        return f"table {self.name}{f' ({about})' if about else ''}: columns {', '.join(columns)}{key}"


def _from_sqlite(path: Path) -> list[Table]:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a SQLite file or a URL with '://'")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' "
                "ESCAPE '\\'"
            )
            return [_sqlite_table(connection, name) for (name,) in names.fetchall()]
    except sqlite3.Error as error:
        raise UserError(f"{path}: cannot be read as a SQLite database: {error}") from error


def _sqlite_table(connection: sqlite3.Connection, name: str) -> Table:
    # Table-valued pragmas take the name as a parameter: nothing to quote.
    columns = connection.execute("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", [name]).fetchall()
    keyed = sorted((position, column) for column, _, position in columns if position)
    references = connection.execute('SELECT DISTINCT "table" FROM pragma_foreign_key_list(?)', [name]).fetchall()
    return Table(
        name,
        [(column, kind, "") for column, kind, _ in columns],
        [column for _, column in keyed],
        [other for (other,) in references],
    )


def _from_url(url: str, schema: str | None) -> list[Table]:
    sqlalchemy = optional("sqlalchemy", "a database URL")
    try:
        engine = sqlalchemy.create_engine(url)
        try:
            inspector = sqlalchemy.inspect(engine)
            names = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
            return [_inspected_table(inspector, name, schema) for name in names]
        finally:
            engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise UserError(f"{without_passwords(url)}: cannot be read: {without_passwords(str(error))}") from None


def _inspected_table(inspector: Any, name: str, schema: str | None) -> Table:
    columns = inspector.get_columns(name, schema)
    keys = inspector.get_foreign_keys(name, schema)
    try:
        comment = inspector.get_table_comment(name, schema)["text"] or ""
    except NotImplementedError:  # a database without comments
        comment = ""
    return Table(
        name,
        [(column["name"], str(column["type"]), column.get("comment") or "") for column in columns],
        inspector.get_pk_constraint(name, schema)["constrained_columns"],
        [key["referred_table"] for key in keys if key["referred_schema"] == schema],
        comment,
    )


def load_sql_dataset(
    url: str,
    *,
    path: str | Path,
    name: str | None = None,
    schema: str | None = None,
    descriptions: Mapping[str, str] | None = None,
    splits: Splits = None,
    knn: int = 0,
) -> Dataset:
    """Read the tables and views of a database, never its rows, and the questions and judgements of a folder.

    Nodes are in alphabetical order; all foreign keys between two tables are one undirected edge. A table that refers to
    itself has none; a key that refers to a missing table is left out with a warning. ``url`` is a SQLite file, opened
    read-only, or a SQLAlchemy URL (``postgresql+psycopg://user@host/name``), which needs the extra ``sql`` and the
    database's driver, perhaps with a ``schema``; it has no password, which would be written into manifests.
    ``descriptions`` by ``table`` or ``table.column`` take precedence over the database's comments. ``path`` is a folder
    of ``queries.jsonl`` and ``qrels/<split>.tsv``, whose ``corpus-id`` is the name of a table; its name is the short
    name when None. ``splits`` and ``knn`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.
    """
    check_no_password(url=url)
    folder = existing_folder(path, needed="queries.jsonl and qrels/<split>.tsv")
    # a path needs no SQLAlchemy and is opened read-only
    source = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") and "?" not in url else url
    tables = _from_url(source, schema) if "://" in source else _from_sqlite(Path(source))
    if not tables:
        raise UserError(f"{source}: the database has no table or view")
    descriptions = descriptions or {}
    known = {table.name for table in tables} | {
        f"{table.name}.{name}" for table in tables for name, *_ in table.columns
    }
    if unknown := sorted(set(descriptions) - known):
        raise UserError(f"`descriptions` must name tables or table.column of the database, got {unknown[0]!r}")
    tables.sort(key=lambda table: table.name)
    node_of = {table.name.casefold(): i for i, table in enumerate(tables)}  # SQL names have no case unless quoted
    node_of |= {table.name: i for i, table in enumerate(tables)}
    edges = set()
    for node, table in enumerate(tables):
        for key in table.references:
            other = node_of.get(key, node_of.get(key.casefold()))
            if other is None:
                warnings.warn(f"table {table.name!r} refers to {key!r}, which is not there: no edge", stacklevel=2)
            elif other != node:
                edges.add((min(node, other), max(node, other)))
    graph = CorpusGraph.from_edges(
        [table.name for table in tables],
        [table.text(descriptions) for table in tables],
        torch.tensor(sorted(edges), dtype=torch.int64).reshape(-1, 2),
        edge_type=REFERENCE,
    )
    node_number = {table: i for i, table in enumerate(graph.node_ids)}
    queries, judged = read_judged_queries(folder, splits, node_number)
    edge_counts = {"foreign keys": graph.num_edges // 2}
    return Dataset.from_queries(name or folder.resolve().name, graph, queries, judged, knn=knn, edge_counts=edge_counts)
