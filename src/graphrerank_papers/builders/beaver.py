"""BEAVER: tables of enterprise warehouses, by the files of its repository or of its script ``data/download_hf.py``.

Source: Chen et al. 2024, BEAVER. ``dev_tables.json`` is an object of tables by ``database#sep#table``, ``dev.json`` has
questions with their SQL, in the script's files in the dialect of MySQL and with the authors' own list of tables.
Judgements are the tables of the SQL; where the authors list others, the card says so. The repository's tables of the
database ``dw`` have no foreign keys; ``dw_join_keys.json`` lists pairs of columns, in the order of the questions that
join them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from graphrerank_papers.builders.draft import Draft, Dropped, Edge
from graphrerank_papers.builders.raw_files import RawFile, RawFiles
from graphrerank_papers.builders.table_retrieval import Database, SchemaTable, SqlQuestion, draft_tables

_SEPARATOR = "#sep#"


def build_beaver(files: RawFiles, *, dialect: str = "mysql", join_keys: bool = False) -> Draft:
    """Read schemas and questions.

    Args:
        files: One warehouse's, or those of the repository.
        dialect: Of its SQL; the repository's ``dw`` is written in Oracle's.
        join_keys: Read ``dw_join_keys.json`` too, as edges of the type ``join_key``. They are taken from the questions'
            own SQL, so that they tell which tables are asked together: a graph that knows labels.
    """
    databases = _databases(files.one("*tables*.json"))
    questions = []
    for i, (_, record) in enumerate(files.one("dev.json", "dev_[!t]*.json").records("question", "sql")):
        stated = record.get("tables", record.get("gold_tables"))
        questions.append(
            SqlQuestion(
                f"beaver-dev-{record.get('id', i)}",
                record["question"],
                "dev",
                str(record.get("db", record.get("db_id"))),
                record["sql"],
                stated=None if stated is None else [name.rsplit(_SEPARATOR, 1)[-1] for name in stated],
            )
        )
    draft = draft_tables([(base, None) for base in databases], questions, dialect=dialect)
    if join_keys:
        draft.edges = [*draft.edges, *_join_edges(files.one("*_join_keys.json"), databases, draft.dropped)]
        draft.notes.append("Edges of the type join_key are taken from the SQL of the questions: they know labels.")
    return draft


def _databases(file: RawFile) -> list[Database]:
    found: dict[str, tuple[list[SchemaTable], list[tuple[str, str, str, str]]]] = {}
    content = file.json()
    if not isinstance(content, dict):
        raise ValueError(f"{file.label}: needed an object of tables by `database{_SEPARATOR}table`, found a list")
    for key, record in content.items():
        try:
            base = str(record.get("db", record.get("db_id", key.rsplit(_SEPARATOR, 1)[0])))
            table, references = _table(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file.label}: needed a table as {key!r} ({error!r})") from error
        tables, keys = found.setdefault(base, ([], []))
        tables.append(table)
        keys += references
    return [
        Database(base, tables, [(*key[:2], _spelled(key[2], tables), key[3]) for key in keys])
        for base, (tables, keys) in found.items()
    ]


def _table(record: Mapping[str, Any]) -> tuple[SchemaTable, list[tuple[str, str, str, str]]]:
    name = record["table_name"] if "table_name" in record else record["table_name_original"]
    columns = record["column_names"] if "column_names" in record else record["column_names_original"]
    primary = record.get("primary_key") or []
    references = [
        (
            name,
            key["column_name"],
            key["referenced_table_name"].rsplit(_SEPARATOR, 1)[-1],
            key["referenced_column_name"],
        )
        for key in record.get("foreign_key") or []
    ]
    words = [column.replace("_", " ").lower() for column in columns]
    return (
        SchemaTable(
            name,
            name.replace("_", " ").lower(),
            columns,
            words,
            record["column_types"],
            primary if isinstance(primary, list) else [primary],
        ),
        references,
    )


def _spelled(name: str, tables: list[SchemaTable]) -> str:
    """Return a table's name as the schema writes it."""
    return next((table.name for table in tables if table.name.casefold() == name.casefold()), name)


def _join_edges(file: RawFile, databases: list[Database], dropped: list[Dropped]) -> Iterator[Edge]:
    """Read pairs of columns that are joined, each once, whichever comes first."""
    name = file.name.rsplit("/", 1)[-1].removesuffix(".gz").removesuffix("_join_keys.json")
    tables = next((base.tables for base in databases if base.name == name), [])
    known, seen = {table.name for table in tables}, set()
    try:
        pairs = [[column.rsplit(".", 1) for column in pair] for pair in file.json()]
        ends = [
            ((_spelled(t, [*tables]), column), (_spelled(u, [*tables]), other)) for (t, column), (u, other) in pairs
        ]
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{file.label}: needed a list of pairs TABLE.COLUMN ({error!r})") from error
    for (table, column), (other, other_column) in ends:
        key = frozenset([(table, column), (other, other_column)])
        if key in seen or table == other:
            continue
        seen.add(key)
        if {table, other} <= known:
            yield Edge(f"{name}.{table}", f"{name}.{other}", "join_key", (column, other_column))
        else:
            edge = f"{name}.{table}.{column} -> {other}.{other_column}"
            dropped.append(Dropped("edge", edge, "refers to a table that is not there"))
