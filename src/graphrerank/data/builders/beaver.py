"""BEAVER: tables of enterprise warehouses, by the files that its authors' script ``data/download_hf.py`` writes.

Source: Chen et al. 2024, BEAVER. A warehouse has ``dev_tables.json``, an object of tables by ``database#sep#table``,
and ``dev.json``, questions with their SQL in the dialect of MySQL and the authors' own list of tables. Judgements are
the tables of the SQL; where the authors list others, the card says so.
"""

from collections.abc import Mapping
from typing import Any

from graphrerank.data.builders.draft import Draft
from graphrerank.data.builders.raw_files import RawFile, RawFiles
from graphrerank.data.builders.table_retrieval import Database, SchemaTable, SqlQuestion, draft_tables

_SEPARATOR = "#sep#"


def build_beaver(files: RawFiles, *, dialect: str = "mysql") -> Draft:
    """Read a warehouse's schema and questions.

    Args:
        files: One warehouse's.
        dialect: Of its SQL.
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
    return draft_tables([(base, None) for base in databases], questions, dialect=dialect)


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
