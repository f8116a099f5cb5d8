"""Table retrieval from text-to-SQL data sets: Spider, BIRD and BEAVER.

A table is a passage, a foreign key is an edge, and the tables that a question's SQL reads are relevant to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.data.readers.records import Record
from graphrerank.installation.extras import require_extra
from graphrerank.utils.checks import UserError, check_choice
from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

SPIDER_SPLITS = {
    "train_spider.json": "train", "train_others.json": "train_others", "dev.json": "dev", "test.json": "test",
}  # fmt: skip
BIRD_SPLITS = ("dev", "train")
MAX_SQL_CHARS = 1_000_000
_DUAL = "dual"  # Oracle's table of one row, which holds nothing
_SEPARATOR = "#sep#"  # between database and table in BEAVER's names
Reference = tuple[str, str, str, str]  # table and column of a foreign key, table and column that it refers to


class UnreadableSqlError(UserError):
    """A query whose tables cannot be determined; ``reason`` is the same for the same kind of problem."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass
class Database:
    """A database's schema."""

    name: str
    # by name as in queries: the title in words, and lists of `columns` (names as in queries), `column_names` (in
    # words), `types` and `primary_key`
    tables: dict[str, tuple[str, Mapping[str, Sequence[str]]]] = field(default_factory=dict)
    references: list[Reference] = field(default_factory=list)
    split: str | None = None


@dataclass(frozen=True)
class SqlQuestion:
    """A question and the SQL that answers it."""

    query_id: str
    text: str
    split: str
    database: str
    sql: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stated: Sequence[str] | None = None  # relevant tables according to the authors; None if they list none


@builder("spider", "Spider 1.0 table retrieval", "CC BY-SA 4.0", "https://yale-lily.github.io/spider")
def spider(files: RawFiles, writer: DatasetWriter, *, only_asked: bool = False) -> None:
    """Read Spider's schemas and the questions of the splits that are given.

    Source: Yu et al. 2018, Spider. The split ``train_others`` has questions of older data sets. Databases of train, dev
    and test are disjoint.

    ``only_asked`` leaves out databases without questions: ``test_tables.json`` has those of all splits.
    """
    schemas = files.matching("tables.json", "test_tables.json", required=True)
    schemas.sort(key=lambda file: file.name.endswith("test_tables.json"))
    databases: dict[str, Database] = {}
    for base in (_database(record) for file in schemas for record in file.records()):
        if databases.setdefault(base.name, base) != base:
            raise ValueError(f"needed one schema of each database, found two different ones of {base.name!r}")
    questions = [
        SqlQuestion(f"spider-{split}-{i}", record["question"], split, record["db_id"], record["query"])
        for name, split in SPIDER_SPLITS.items()
        for file in files.matching(name)
        for i, record in enumerate(file.records())
    ]
    if absent := [split for name, split in SPIDER_SPLITS.items() if not files.matching(name)]:
        writer.notes.append(f"Splits whose files were not given: {', '.join(absent)}.")
    asked = {question.database for question in questions}
    _write_tables(writer, [base for base in databases.values() if base.name in asked or not only_asked], questions)


@builder("bird", "BIRD table retrieval", "CC BY-SA 4.0", "https://bird-bench.github.io")
def bird(files: RawFiles, writer: DatasetWriter) -> None:
    """Read BIRD's schemas and questions; ``metadata.split`` of a table is the split of its database.

    Source: Li et al. 2023, BIRD. Databases of train and dev are disjoint.
    """
    given = [split for split in BIRD_SPLITS if files.matching(f"{split}_tables.json", f"{split}.json")]
    if not given:
        files.one("train.json", "dev.json")
    writer.notes += [f"The files of the split {split} were not given." for split in BIRD_SPLITS if split not in given]
    databases = [_database(record, split) for split in given for record in files.one(f"{split}_tables.json").records()]
    questions = [
        SqlQuestion(
            f"bird-{split}-{i}", record["question"], split, record["db_id"], record["SQL"],
            {key: record.get(key) for key in ("evidence", "difficulty")},
        )
        for split in reversed(given)
        for i, record in enumerate(files.one(f"{split}.json").records())
    ]  # fmt: skip
    _write_tables(writer, databases, questions)


@builder("beaver", "BEAVER table retrieval", "as its gated page says", "https://peterbaile.github.io/beaver")
def beaver(files: RawFiles, writer: DatasetWriter, *, dialect: str = "mysql") -> None:
    """Read BEAVER's enterprise warehouses, from its repository or from its script ``data/download_hf.py``.

    Source: Chen et al. 2024, BEAVER. ``dev_tables.json`` is an object of tables by ``database#sep#table``. Judgements
    are the tables of the SQL; if the authors list others, ``dropped.jsonl`` says so.

    ``dialect`` is that of the SQL, ``oracle`` for the repository's ``dw``.
    """
    databases = _beaver_databases(files.one("*tables*.json"))
    questions = []
    for i, record in enumerate(files.one("dev.json", "dev_[!t]*.json").records()):
        listed = record.get("tables", record.get("gold_tables"))
        stated = None if listed is None else [name.rsplit(_SEPARATOR, 1)[-1] for name in listed]
        query_id, database = f"beaver-dev-{record.get('id', i)}", str(record.get("db", record.get("db_id")))
        questions.append(SqlQuestion(query_id, record["question"], "dev", database, record["sql"], stated=stated))
    _write_tables(writer, databases.values(), questions, dialect=dialect)


def gold_tables(sql: str, tables: Collection[str], *, dialect: str = "sqlite") -> list[str]:
    """List the tables that a query reads, each once, by the alphabet.

    A name that a ``WITH`` clause defines is no table where the clause holds: in the query behind it and in the later
    ones of the clause, in its own query only if it is recursive. Aliases and functions that return rows are none.

    ``tables`` are those of the database, perhaps with their schema; ``dialect`` is one of sqlglot's. An
    :class:`UnreadableSqlError` if it cannot be parsed, is no single query, reads no table, or names one that is absent.

    Example:
        >>> sql = "WITH s AS (SELECT id FROM singer) SELECT * FROM s JOIN [song] AS t ON s.id = t.id"
        >>> gold_tables(sql, ["Singer", "Song"])
        ['Singer', 'Song']
    """
    found = set()
    for name in _table_names(sql, dialect):
        table = find_table(name, tables)
        if table is not None:
            found.add(table)
        elif name.casefold().rsplit(".", 1)[-1] != _DUAL:
            raise UnreadableSqlError("names a table that its database does not have", name)
    return sorted(found)


def find_table(name: str, tables: Collection[str]) -> str | None:
    """Return the table that a name of a query means, None if there is none; an error if it may mean several.

    Names are compared without case; either may have a schema in front that the other leaves out.
    """
    if name in tables:
        return name
    parts = name.casefold().split(".")
    for ending in (parts[start:] for start in range(len(parts))):
        found = sorted(table for table in tables if table.casefold().split(".")[-len(ending) :] == ending)
        if len(found) > 1:
            raise UnreadableSqlError("names a table that may be one of several", f"{name} of {found}")
        if found:
            return found[0]
    return None


def _table_names(sql: str, dialect: str) -> list[str]:
    """List the names of tables in a query, without those that its ``WITH`` clauses define."""
    require_extra("build", "reading SQL")
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    check_choice(sorted(each.value for each in sqlglot.Dialects if each.value), dialect=dialect)
    if len(sql) > MAX_SQL_CHARS:
        raise UnreadableSqlError("is too long", f"{len(sql):,} characters")
    try:
        statements = [each for each in sqlglot.parse(sql, dialect=dialect) if each is not None]
        if len(statements) != 1 or not isinstance(query := statements[0], exp.Query):
            kinds = [type(each).__name__ for each in statements]
            raise UnreadableSqlError("is not one query", f"it has {kinds or 'no statement'}")
        # sqlglot compares names of `WITH` clauses with their case
        defined = {clause.alias.casefold() for clause in query.find_all(exp.CTE)}
        for identifier in query.find_all(exp.Identifier):
            if identifier.name.casefold() in defined and len(getattr(identifier.parent, "parts", ())) < 2:
                identifier.set("this", identifier.name.casefold())
        sources = [source for scope in traverse_scope(query) for source in scope.sources.values()]
    except (SqlglotError, RecursionError) as error:
        raise UnreadableSqlError("cannot be parsed", " ".join(str(error).split())[:300]) from error
    found = [
        ".".join(part.name for part in source.parts if isinstance(part, exp.Identifier))
        for source in sources
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)  # no function
    ]
    if not found:
        raise UnreadableSqlError("reads no table", query.sql()[:300])
    return found


def _write_tables(
    writer: DatasetWriter, databases: Collection[Database], questions: Sequence[SqlQuestion], *, dialect: str = "sqlite"
) -> None:
    """Write schemas and questions; a question whose SQL is unreadable is dropped, with the reason."""
    tables = {base.name: base.tables for base in databases}
    for question in questions:
        try:
            if question.database not in tables:
                raise UnreadableSqlError("asks a database without a schema", question.database)
            gold = gold_tables(question.sql, tables[question.database], dialect=dialect)
        except UnreadableSqlError as error:
            writer.drop("query", question.query_id, f"its SQL {error.reason}", error.detail)
            continue
        if question.stated is not None and set(map(str.casefold, question.stated)) != set(map(str.casefold, gold)):
            detail = f"SQL: {gold}; authors: {sorted(question.stated)}"
            writer.drop("judgement", question.query_id, "the authors list other tables than its SQL", detail)
        metadata = {"db_id": question.database, "sql": question.sql, **question.metadata}
        writer.record("query", {"_id": question.query_id, "text": question.text, "metadata": metadata})
        writer.judge(question.split, question.query_id, *(f"{question.database}.{table}" for table in gold))
    for base in databases:
        for table, (title, lists) in base.tables.items():
            listed = ", ".join(words.replace("_", " ").strip() for words in lists["column_names"])
            text = f"table {table} ({title}) in database {base.name.replace('_', ' ')}: columns {listed}"
            metadata = {"db_id": base.name, "table": table, **lists, "split": base.split}
            writer.document(f"{base.name}.{table}", title, text, **metadata)
        for table, column, other, other_column in base.references:
            if table in base.tables and other in base.tables and table != other:
                ends = f"{base.name}.{table}", f"{base.name}.{other}"
                writer.edge(*ends, "foreign_key", source_column=column, target_column=other_column)
            else:
                reason = "refers to its own table" if other == table else "refers to a table that is not there"
                writer.drop("edge", f"{base.name}.{table}.{column} -> {other}.{other_column}", reason)


def _database(record: Record, split: str | None = None) -> Database:
    """Read a database of ``tables.json`` in the format of Spider and BIRD."""
    originals = record["table_names_original"]
    columns = list(zip(record["column_names_original"], record["column_names"], record["column_types"], strict=True))
    keys = {key for entry in record["primary_keys"] for key in (entry if isinstance(entry, list) else [entry])}
    base = Database(record["db_id"], split=split)
    for number, (name, title) in enumerate(zip(originals, record["table_names"], strict=True)):
        own = [(i, column, words, kind) for i, ((t, column), (_, words), kind) in enumerate(columns) if t == number]
        lists = zip(*(entry[1:] for entry in own), strict=True) if own else ([], [], [])
        base.tables[name] = title, _lists(*map(list, lists), [column for i, column, *_ in own if i in keys])
    ends = [(columns[start][0], columns[stop][0]) for start, stop in record["foreign_keys"]]
    base.references += [(originals[t], column, originals[u], other) for (t, column), (u, other) in ends]
    return base


def _lists(*lists: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return dict(zip(("columns", "column_names", "types", "primary_key"), lists, strict=True))


def _beaver_databases(file: RawFile) -> dict[str, Database]:
    databases: dict[str, Database] = {}
    for key, record in file.entries():
        name = str(record.get("db", record.get("db_id", key.rsplit(_SEPARATOR, 1)[0])))
        table = record["table_name"] if "table_name" in record else record["table_name_original"]
        columns = record["column_names"] if "column_names" in record else record["column_names_original"]
        primary = record.get("primary_key") or []
        title, *words = (text.replace("_", " ").lower() for text in (table, *columns))
        base = databases.setdefault(name, Database(name))
        primary = primary if isinstance(primary, list) else [primary]
        base.tables[table] = title, _lists(columns, words, record["column_types"], primary)
        for entry in record.get("foreign_key") or []:
            target = entry["referenced_table_name"].rsplit(_SEPARATOR, 1)[-1]
            base.references.append((table, entry["column_name"], target, entry["referenced_column_name"]))
    for base in databases.values():
        base.references = [(t, column, _spelled(u, base.tables), other) for t, column, u, other in base.references]
    return databases


def _spelled(name: str, tables: Iterable[str]) -> str:
    """Return a table's name in the schema's spelling."""
    return next((table for table in tables if table.casefold() == name.casefold()), name)
