"""Table retrieval from text-to-SQL: a passage for each table, foreign keys as edges, the query's tables as relevant."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank_papers.builders.draft import Draft, Dropped, Edge, Judgement, document, query
from graphrerank_papers.builders.gold_tables import TableNames, UnreadableSqlError, gold_tables
from graphrerank_papers.builders.raw_files import RawFile

EDGE_COLUMNS = ("source_column", "target_column")


@dataclass(frozen=True)
class SchemaTable:
    """A table as a schema's file describes it."""

    name: str  # as queries write it
    title: str  # in words
    columns: Sequence[str]  # as queries write them
    column_titles: Sequence[str]  # in words
    types: Sequence[str]
    primary_key: Sequence[str]


@dataclass(frozen=True)
class Database:
    """A database's schema."""

    name: str
    tables: Sequence[SchemaTable]
    references: Sequence[tuple[str, str, str, str]]  # table, column, table that it refers to, its column
    views: Mapping[str, str] = field(default_factory=dict)  # queries that define views, by name


@dataclass(frozen=True)
class SqlQuestion:
    """A question with the query that answers it."""

    query_id: str
    text: str
    split: str
    database: str
    sql: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stated: Sequence[str] | None = None  # relevant tables as the authors list them; None where they do not


def draft_tables(
    databases: Sequence[tuple[Database, str | None]],
    questions: Sequence[SqlQuestion],
    *,
    dialect: str = "sqlite",
    notes: Iterable[str] = (),
) -> Draft:
    """Combine schemas and questions; a question whose query is unreadable is dropped, with the reason.

    Args:
        databases: Each with what ``split`` in its tables' metadata says; None for nothing.
        questions: In order.
        dialect: Of their queries, as of :func:`~graphrerank_papers.builders.gold_tables.gold_tables`.
        notes: For the card.
    """
    names = {base.name: TableNames([table.name for table in base.tables], base.views, dialect) for base, _ in databases}
    dropped: list[Dropped] = []
    qrels: dict[str, list[Judgement]] = {}
    queries: list[Record] = []
    for each in questions:
        try:
            if each.database not in names:
                raise UnreadableSqlError("asks a database without a schema", each.database)
            gold = gold_tables(each.sql, names[each.database], dialect=dialect)
        except UnreadableSqlError as error:
            dropped.append(Dropped("query", each.query_id, f"its SQL {error.reason}", error.detail))
            continue
        if each.stated is not None and {t.casefold() for t in each.stated} != {t.casefold() for t in gold}:
            detail = f"SQL: {sorted(gold)}; authors: {sorted(each.stated)}"
            dropped.append(Dropped("judgement", each.query_id, "the authors list other tables than its SQL", detail))
        queries.append(query(each.query_id, each.text, db_id=each.database, sql=each.sql))
        queries[-1]["metadata"] |= each.metadata
        qrels.setdefault(each.split, []).extend(Judgement(each.query_id, f"{each.database}.{t}") for t in sorted(gold))
    return Draft(
        [passage for base, split in databases for passage in _passages(base, split)],
        queries,
        qrels,
        [edge for base, _ in databases for edge in _foreign_keys(base, dropped)],
        EDGE_COLUMNS,
        dropped,
        list(notes),
    )


def read_databases(file: RawFile) -> list[Database]:
    """Read ``tables.json`` in the format of Spider, which BIRD has too."""
    return [_database(record, place) for place, record in file.records("db_id", "table_names_original", "foreign_keys")]


def merge_databases(parts: Sequence[Sequence[Database]]) -> list[Database]:
    """Join lists of databases; one that stands in several must be the same in all, or a ValueError names it."""
    merged: dict[str, Database] = {}
    for base in (base for part in parts for base in part):
        if merged.setdefault(base.name, base) != base:
            raise ValueError(f"`from` must hold one schema of each database, found two different ones of {base.name!r}")
    return list(merged.values())


def _database(record: Record, place: str) -> Database:
    try:
        originals, titles = record["table_names_original"], record["table_names"]
        columns = list(
            zip(record["column_names_original"], record["column_names"], record["column_types"], strict=True)
        )
        keys = {key for entry in record["primary_keys"] for key in (entry if isinstance(entry, list) else [entry])}
        tables = []
        for number, (name, title) in enumerate(zip(originals, titles, strict=True)):
            own = [(i, column, words, kind) for i, ((t, column), (_, words), kind) in enumerate(columns) if t == number]
            tables.append(
                SchemaTable(
                    name,
                    title,
                    [column for _, column, _, _ in own],
                    [words for _, _, words, _ in own],
                    [kind for _, _, _, kind in own],
                    [column for i, column, _, _ in own if i in keys],
                )
            )
        ends = [(columns[start][0], columns[stop][0]) for start, stop in record["foreign_keys"]]
        references = [(originals[t], column, originals[u], other) for (t, column), (u, other) in ends]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise ValueError(f"{place}: needed a database as in Spider's tables.json ({error!r})") from error
    return Database(record["db_id"], tables, references)


def _passages(base: Database, split: str | None) -> Iterator[Record]:
    for table in base.tables:
        listed = ", ".join(title.replace("_", " ").strip() for title in table.column_titles)
        yield document(
            f"{base.name}.{table.name}",
            table.title,
            f"table {table.name} ({table.title}) in database {base.name.replace('_', ' ')}: columns {listed}",
            db_id=base.name,
            table=table.name,
            columns=list(table.columns),
            column_names=list(table.column_titles),
            types=list(table.types),
            primary_key=list(table.primary_key),
            split=split,
        )


def _foreign_keys(base: Database, dropped: list[Dropped]) -> Iterator[Edge]:
    names = {table.name for table in base.tables}
    for table, column, other, other_column in base.references:
        edge = f"{base.name}.{table}.{column} -> {other}.{other_column}"
        if other not in names:
            dropped.append(Dropped("edge", edge, "refers to a table that is not there"))
        elif other == table:
            dropped.append(Dropped("edge", edge, "refers to its own table"))
        else:
            ends = f"{base.name}.{table}", f"{base.name}.{other}"
            yield Edge(*ends, "foreign_key", (column, other_column))
