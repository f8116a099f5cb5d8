"""A database as a data set: the tables that a question needs."""

from collections.abc import Mapping
from pathlib import Path

from graphrerank.data.dataset import Dataset
from graphrerank.data.readers.judged_queries import read_judged_queries
from graphrerank.data.readers.judgements import Splits
from graphrerank.data.readers.records import existing_folder
from graphrerank.data.readers.sql_schema import load_sql_schema
from graphrerank.passwords import check_no_password


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
    """Read a database's tables and foreign keys, and the questions and judgements of a folder.

    Args:
        url: A SQLAlchemy URL without a password, or a SQLite file.
        path: Folder of ``queries.jsonl`` and ``qrels/<split>.tsv``, as in a data set folder; a ``corpus-id`` is the
            name of a table.
        name: Short name; the folder's own when None.
        schema: As of :func:`~graphrerank.data.readers.sql_schema.load_sql_schema`.
        descriptions: As there.
        splits: As of :meth:`~graphrerank.data.dataset.Dataset.from_folder`.
        knn: As there.

    Raises:
        ValueError: If the URL holds a password, which would be written into manifests; the database cannot be read; or
            a file is missing or malformed, naming file and line.
    """
    check_no_password(url=url)
    folder = existing_folder(path, needed="queries.jsonl and qrels/<split>.tsv")
    graph = load_sql_schema(_plain_file(url), schema=schema, descriptions=descriptions)
    node_number = {table: i for i, table in enumerate(graph.node_ids)}
    queries, judged = read_judged_queries(folder, splits, node_number)
    edge_counts = {"foreign keys": graph.num_edges // 2}
    return Dataset.from_queries(name or folder.resolve().name, graph, queries, judged, knn=knn, edge_counts=edge_counts)


def _plain_file(url: str) -> str:
    """Return the path in ``sqlite:///path``, so that it needs no SQLAlchemy and is opened read-only."""
    return url.removeprefix("sqlite:///") if url.startswith("sqlite:///") and "?" not in url else url
