"""The tables that a SQL query reads, by its syntax tree."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from graphrerank.checks import UserError, check_choice
from graphrerank.extras import require_extra

if TYPE_CHECKING:
    from sqlglot import exp

MAX_SQL_CHARS = 1_000_000
_DUAL = "dual"  # Oracle's table of one row, which holds nothing


class UnreadableSqlError(UserError):
    """A query whose tables cannot be determined; ``reason`` is the same for the same kind of problem."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class TableNames:
    """Names of tables, perhaps with their schema, as queries may write them: in any case, quoted, behind a schema."""

    def __init__(self, tables: Iterable[str]) -> None:
        self._exact = set(tables)
        self._found: dict[str, list[str]] = {}
        for table in sorted(self._exact):
            parts = table.casefold().split(".")
            for start in range(len(parts)):
                self._found.setdefault(".".join(parts[start:]), []).append(table)

    def find(self, name: str) -> str | None:
        """Return the table that a name means, None if there is none; an error if it may mean several."""
        if name in self._exact:
            return name
        parts = name.casefold().split(".")
        for start in range(len(parts)):  # queries may write a schema or database in front that the schema leaves out
            found = self._found.get(".".join(parts[start:]), [])
            if len(found) == 1:
                return found[0]
            if found:
                raise UnreadableSqlError("names a table that may be one of several", f"{name} of {found}")
        return None


def gold_tables(sql: str, names: TableNames, *, dialect: str = "sqlite") -> list[str]:
    """List the tables that a query reads, each once, by the alphabet.

    A name that a ``WITH`` clause defines is no table where the clause holds: in the query behind it and in the later
    ones of the clause, in its own query only if it is recursive. Aliases and functions that return rows are none.

    ``dialect`` is one of sqlglot's (``sqlite``, ``mysql``, ``postgres``, ``oracle``, ``tsql``, ...).

    Raises:
        UnreadableSqlError: If it cannot be parsed, is no single query, reads no table, or names one that is not there.

    Example:
        >>> names = TableNames(["Singer", "Song"])
        >>> gold_tables("WITH s AS (SELECT id FROM singer) SELECT * FROM s JOIN [song] AS t ON s.id = t.id", names)
        ['Singer', 'Song']
    """
    tables = []
    for name in _table_names(_parse(sql, dialect)):
        table = names.find(name)
        if table is not None:
            tables.append(table)
        elif name.casefold().rsplit(".", 1)[-1] != _DUAL:
            raise UnreadableSqlError("names a table that its database does not have", name)
    return sorted(set(tables))


def _parse(sql: str, dialect: str) -> "exp.Query":
    require_extra("build", "reading SQL")
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    check_choice(sorted(each.value for each in sqlglot.Dialects if each.value), dialect=dialect)
    if len(sql) > MAX_SQL_CHARS:
        raise UnreadableSqlError("is too long", f"{len(sql):,} characters")
    try:
        statements = [each for each in sqlglot.parse(sql, dialect=dialect) if each is not None]
    except (SqlglotError, RecursionError) as error:
        raise UnreadableSqlError("cannot be parsed", " ".join(str(error).split())[:300]) from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        kinds = [type(each).__name__ for each in statements]
        raise UnreadableSqlError("is not one query", f"it has {kinds or 'no statement'}")
    return statements[0]


def _table_names(query: "exp.Query") -> list[str]:
    """List the names of tables in a query, without those that its ``WITH`` clauses define."""
    from sqlglot import exp
    from sqlglot.errors import SqlglotError
    from sqlglot.optimizer.scope import traverse_scope

    # sqlglot compares names of `WITH` clauses with their case
    defined = {clause.alias.casefold() for clause in query.find_all(exp.CTE)}
    for identifier in query.find_all(exp.Identifier):
        if identifier.name.casefold() in defined and len(getattr(identifier.parent, "parts", ())) < 2:
            identifier.set("this", identifier.name.casefold())
    try:
        sources = [source for scope in traverse_scope(query) for source in scope.sources.values()]
    except SqlglotError as error:
        raise UnreadableSqlError("cannot be parsed", " ".join(str(error).split())[:300]) from error
    found = [
        ".".join(part.name for part in source.parts if isinstance(part, exp.Identifier))
        for source in sources
        if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)  # no function
    ]
    if not found:
        raise UnreadableSqlError("reads no table", query.sql()[:300])
    return found
