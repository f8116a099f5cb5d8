"""A database as a data set: the tables that a question needs."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from graphrerank.checks import UserError
from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.judgements import Splits, read_judged_queries
from graphrerank.data.readers.records import existing_folder
from graphrerank.extras import optional
from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import REFERENCE
from graphrerank.passwords import check_no_password, without_passwords


class Table(NamedTuple):
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


def _tables(url: str, schema: str | None) -> list[Table]:
    """Read the schema of a database; a file of SQLite is not written to."""
    sqlalchemy = optional("sqlalchemy", "a database")
    address: Any = url
    if "://" not in url or (url.startswith("sqlite:///") and "?" not in url):
        path = Path(url.removeprefix("sqlite:///"))
        if not path.is_file():
            raise UserError(f"{path}: no such file; give a SQLite file or a URL with '://'")
        query = {"mode": "ro", "uri": "true"}
        address = sqlalchemy.URL.create("sqlite", database=path.resolve().as_uri(), query=query)
    try:
        engine = sqlalchemy.create_engine(address)
        try:
            inspector = sqlalchemy.inspect(engine)
            names = [*inspector.get_table_names(schema), *inspector.get_view_names(schema)]
            return [_table(inspector, name, schema) for name in names]
        finally:
            engine.dispose()
    except (sqlalchemy.exc.SQLAlchemyError, ImportError) as error:
        raise UserError(f"{without_passwords(url)}: cannot be read: {without_passwords(str(error))}") from None


def _table(inspector: Any, name: str, schema: str | None) -> Table:
    columns = [
        (column["name"], str(column["type"]).removeprefix("NULL"), column.get("comment") or "")  # NULL: without a type
        for column in inspector.get_columns(name, schema)
    ]
    keys = inspector.get_foreign_keys(name, schema)
    try:
        comment = inspector.get_table_comment(name, schema)["text"] or ""
    except NotImplementedError:  # a database without comments
        comment = ""
    primary = inspector.get_pk_constraint(name, schema)["constrained_columns"]
    others = [key["referred_table"] for key in keys if key["referred_schema"] == schema]
    return Table(name, columns, primary, others, comment)


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
    read-only, or a SQLAlchemy URL (``postgresql+psycopg://user@host/name``), which needs the database's driver, perhaps
    with a ``schema``; it has no password, which would be written into manifests.
    ``descriptions`` by ``table`` or ``table.column`` take precedence over the database's comments. ``path`` is a folder
    of ``queries.jsonl`` and ``qrels/<split>.tsv``, whose ``corpus-id`` is the name of a table; its name is the short
    name when None. ``splits`` and ``knn`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.
    """
    check_no_password(url=url)
    folder = existing_folder(path, needed="queries.jsonl and qrels/<split>.tsv")
    tables = _tables(url, schema)
    if not tables:
        raise UserError(f"{url}: the database has no table or view")
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
