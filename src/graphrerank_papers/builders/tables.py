"""Build table retrieval data sets from text-to-SQL data sets: Spider, BIRD and BEAVER.

A passage describes a table, an edge is a foreign key, and the tables that a question's SQL reads are relevant to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from graphrerank._moved import moved_names
from graphrerank.data.readers.records import Record
from graphrerank.installation.extras import require_extra
from graphrerank.utils.checks import UserError, check_choice
from graphrerank_papers.builders.builder import DatasetWriter, builder
from graphrerank_papers.builders.raw_files import RawFile, RawFiles

__getattr__ = moved_names(__name__)

SPIDER_SPLITS = {
    "train_spider.json": "train", "train_others.json": "train_others", "dev.json": "dev", "test.json": "test",
}  # fmt: skip
BIRD_SPLITS = ("dev", "train")
MAX_SQL_CHARS = 1_000_000
_DUAL = "dual"  # Oracle's one-row dummy table
_SEPARATOR = "#sep#"  # between database and table in BEAVER's names


class ForeignKey(NamedTuple):
    """Foreign key.

    Attributes:
        table: Table with the foreign key.
        column: Column of the foreign key.
        target: Table that it refers to.
        target_column: Column that it refers to.
    """

    table: str
    column: str
    target: str
    target_column: str


class UnreadableSqlError(UserError):
    """SQL query whose tables cannot be determined.

    Attributes:
        reason: Kind of problem, with the same words for all queries with this problem.
        detail: Particulars of this query.
    """

    def __init__(self, reason: str, detail: str) -> None:
        """Create the error.

        Args:
            reason: Kind of problem, with the same words for all queries with this problem.
            detail: Particulars of this query.
        """
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


@dataclass
class Database:
    """Schema of a database.

    Attributes:
        name: Id of the database.
        tables: Title and columns of each table, keyed by the name of the table in SQL. The columns are lists under
            ``columns`` (names in SQL), ``column_names`` (names in words), ``types`` and ``primary_key`` (names in SQL).
        references: Foreign keys.
        split: Split that the database belongs to, or None if the data set does not divide databases.
    """

    name: str
    tables: dict[str, tuple[str, Mapping[str, Sequence[str]]]] = field(default_factory=dict)
    references: list[ForeignKey] = field(default_factory=list)
    split: str | None = None


@dataclass(frozen=True)
class SqlQuestion:
    """Question and the SQL query that answers it.

    Attributes:
        query_id: Id of the question.
        text: Text of the question.
        split: Split of the question.
        database: Id of the database.
        sql: SQL query.
        metadata: Further metadata of the query.
        stated: Relevant tables according to the authors. None if they list none.
    """

    query_id: str
    text: str
    split: str
    database: str
    sql: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    stated: Sequence[str] | None = None


@builder("spider", "Spider 1.0 table retrieval", "CC BY-SA 4.0", "https://yale-lily.github.io/spider")
def spider(files: RawFiles, writer: DatasetWriter, *, only_asked: bool = False) -> None:
    """Build Spider's table retrieval data set from the schemas and the questions of all splits in the files.

    The split ``train_others`` has the questions that Spider takes from older data sets. The databases of train, dev and
    test are disjoint.

    Source: Yu et al. 2018, Spider.

    Args:
        files: Files that include ``tables.json`` or ``test_tables.json``, and the questions of at least one split.
        writer: Writer of the data set folder.
        only_asked: If True, databases without questions are omitted. ``test_tables.json`` contains those of all splits.

    Raises:
        UserError: If no schema is there.
        ValueError: If the files contain two different schemas of one database.
    """
    schemas = files.matching("tables.json", "test_tables.json", required=True)
    schemas.sort(key=lambda file: file.name.endswith("test_tables.json"))
    databases: dict[str, Database] = {}
    for base in (_database(record) for file in schemas for record in file.records()):
        if databases.setdefault(base.name, base) != base:
            raise ValueError(f"each database must have one schema, got two different ones for {base.name!r}")
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
    """Build BIRD's table retrieval data set.

    The metadata of a table have the ``split`` of its database. The databases of train and dev are disjoint.

    Source: Li et al. 2023, BIRD.

    Args:
        files: Files that include ``<split>_tables.json`` and ``<split>.json`` for dev, train or both.
        writer: Writer of the data set folder.

    Raises:
        UserError: If a file is missing or ambiguous.
    """
    splits = [split for split in BIRD_SPLITS if files.matching(f"{split}_tables.json", f"{split}.json")]
    if not splits:
        files.one("train.json", "dev.json")
    writer.notes += [f"The files of the split {split} were not given." for split in BIRD_SPLITS if split not in splits]
    databases = [_database(record, split) for split in splits for record in files.one(f"{split}_tables.json").records()]
    questions = [
        SqlQuestion(
            f"bird-{split}-{i}", record["question"], split, record["db_id"], record["SQL"],
            {key: record.get(key) for key in ("evidence", "difficulty")},
        )
        for split in reversed(splits)
        for i, record in enumerate(files.one(f"{split}.json").records())
    ]  # fmt: skip
    _write_tables(writer, databases, questions)


@builder("beaver", "BEAVER table retrieval", "as its gated page says", "https://peterbaile.github.io/beaver")
def beaver(files: RawFiles, writer: DatasetWriter, *, dialect: str = "mysql") -> None:
    """Build BEAVER's table retrieval data set over enterprise data warehouses.

    The files come from BEAVER's repository or from its script ``data/download_hf.py``. The judgements are the tables of
    the SQL query. If the authors list different tables, ``dropped.jsonl`` records the difference.

    Source: Chen et al. 2024, BEAVER.

    Args:
        files: Files that include ``dev_tables.json``, an object of tables keyed by ``database#sep#table``, and the
            questions.
        writer: Writer of the data set folder.
        dialect: SQL dialect of the queries. Use ``oracle`` for the repository's ``dw``.

    Raises:
        UserError: If a file is missing or ambiguous, or ``dialect`` is unknown.
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
    """Return the tables that a SQL query reads.

    Aliases and functions that return rows are not tables. A name that a ``WITH`` clause defines is not a table within
    the scope of the clause, which is the main query, the later definitions of the clause and, if it is recursive, the
    definition itself.

    Args:
        sql: SQL query.
        tables: Names of the database's tables, with or without their schema.
        dialect: SQL dialect, one of sqlglot's.

    Returns:
        Names of the distinct tables as written in ``tables``, sorted alphabetically.

    Raises:
        UnreadableSqlError: If ``sql`` cannot be parsed, is not a single query, reads no table, or names a table that is
            not in ``tables``.
        UserError: If ``dialect`` is unknown.

    Example:
        >>> sql = "WITH s AS (SELECT id FROM singer) SELECT * FROM s JOIN [song] AS t ON s.id = t.id"
        >>> gold_tables(sql, ["Singer", "Song"])
        ['Singer', 'Song']
    """
    gold = set()
    for name in _table_names(sql, dialect):
        table = find_table(name, tables)
        if table is not None:
            gold.add(table)
        elif name.casefold().rsplit(".", 1)[-1] != _DUAL:
            raise UnreadableSqlError("names a table that its database does not have", name)
    return sorted(gold)


def find_table(name: str, tables: Collection[str]) -> str | None:
    """Return the table that a name in a query refers to, or None if there is no such table.

    Case is ignored, and a schema prefix is optional in both names.

    Args:
        name: Name in the query.
        tables: Names of the database's tables.

    Raises:
        UnreadableSqlError: If the name may refer to several tables.
    """
    if name in tables:
        return name
    parts = name.casefold().split(".")
    for ending in (parts[start:] for start in range(len(parts))):
        matches = sorted(table for table in tables if table.casefold().split(".")[-len(ending) :] == ending)
        if len(matches) > 1:
            raise UnreadableSqlError("names a table that may be one of several", f"{name} of {matches}")
        if matches:
            return matches[0]
    return None


def _table_names(sql: str, dialect: str) -> list[str]:
    """Return the names of the tables in a query, without the names that its ``WITH`` clauses define."""
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
        # sqlglot compares the names of `WITH` clauses case-sensitively.
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
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)  # not a function
    ]
    if not found:
        raise UnreadableSqlError("reads no table", query.sql()[:300])
    return found


def _write_tables(
    writer: DatasetWriter, databases: Collection[Database], questions: Sequence[SqlQuestion], *, dialect: str = "sqlite"
) -> None:
    """Write schemas and questions, and drop questions whose SQL cannot be read."""
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
        for table, column, target, target_column in base.references:
            if table in base.tables and target in base.tables and table != target:
                ends = f"{base.name}.{table}", f"{base.name}.{target}"
                writer.edge(*ends, "foreign_key", source_column=column, target_column=target_column)
            else:
                reason = "refers to its own table" if target == table else "refers to a table that is not there"
                writer.drop("edge", f"{base.name}.{table}.{column} -> {target}.{target_column}", reason)


def _database(record: Record, split: str | None = None) -> Database:
    """Parse a database of ``tables.json`` in the format of Spider and BIRD."""
    originals = record["table_names_original"]
    columns = list(zip(record["column_names_original"], record["column_names"], record["column_types"], strict=True))
    keys = {key for entry in record["primary_keys"] for key in (entry if isinstance(entry, list) else [entry])}
    base = Database(record["db_id"], split=split)
    for number, (name, title) in enumerate(zip(originals, record["table_names"], strict=True)):
        own = [(i, column, words, kind) for i, ((t, column), (_, words), kind) in enumerate(columns) if t == number]
        lists = zip(*(entry[1:] for entry in own), strict=True) if own else ([], [], [])
        base.tables[name] = title, _lists(*map(list, lists), [column for i, column, *_ in own if i in keys])
    ends = [(columns[start][0], columns[stop][0]) for start, stop in record["foreign_keys"]]
    for (table_index, column), (target_index, target_column) in ends:
        base.references.append(ForeignKey(originals[table_index], column, originals[target_index], target_column))
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
            base.references.append(ForeignKey(table, entry["column_name"], target, entry["referenced_column_name"]))
    for base in databases.values():
        base.references = [each._replace(target=_spelled(each.target, base.tables)) for each in base.references]
    return databases


def _spelled(name: str, tables: Iterable[str]) -> str:
    """Return the name of a table as the schema spells it."""
    return next((table for table in tables if table.casefold() == name.casefold()), name)
