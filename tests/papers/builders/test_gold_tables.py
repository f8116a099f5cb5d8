"""Tables of queries; the answers were read off the queries by hand."""

from pathlib import Path

import pytest

pytest.importorskip("sqlglot")

from graphrerank_papers.builders.gold_tables import TableNames, UnreadableSqlError, gold_tables
from tests.support.raw import Built

NAMES = TableNames(["Singer", "Song", "concert", "order details", "main.log", "audit.log", "sales.Order"])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT T1.name FROM singer AS T1 JOIN song AS T2 ON T1.id = T2.singer_id;", "Singer Song"),
        ("SELECT 1 FROM singer WHERE id IN (SELECT id FROM song WHERE x > (SELECT avg(x) FROM concert))",
         "Singer Song concert"),
        ("SELECT * FROM (SELECT id FROM singer) AS song", "Singer"),
        ("SELECT EXISTS(SELECT 1 FROM concert)", "concert"),
        # a name of a WITH clause, which later ones see, and which hides a table of the same name
        ("WITH song AS (SELECT * FROM singer), b AS (SELECT * FROM song) SELECT * FROM b JOIN song",
         "Singer"),
        # but not within its own query, unless it is recursive
        ("WITH song AS (SELECT * FROM song) SELECT * FROM SONG", "Song"),
        ("WITH RECURSIVE song AS (SELECT * FROM singer UNION ALL SELECT * FROM song) SELECT * FROM song", "Singer"),
        # nor outside of the query that it belongs to
        ("SELECT * FROM (WITH song AS (SELECT * FROM singer) SELECT * FROM song) AS a JOIN song USING (id)",
         "Singer Song"),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT * FROM song) SELECT * FROM b", None),
        ('SELECT * FROM "order details" JOIN `singer` JOIN [SONG]', "order details|Singer|Song"),
        ("SELECT * FROM audit.log", "audit.log"),
        ("SELECT * FROM warehouse.sales.\"order\"", "sales.Order"),
        ("SELECT * FROM json_each('[1]') AS j JOIN singer ON singer.id = j.value", "Singer"),
    ],
)  # fmt: skip
def test_tables_of_a_query(sql: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(UnreadableSqlError, match="names a table that its database does not have: b"):
            gold_tables(sql, NAMES)
    else:
        assert gold_tables(sql, NAMES) == sorted(expected.split("|" if "|" in expected else " "))


@pytest.mark.parametrize(
    ("dialect", "sql"),
    [
        ("mysql", "SELECT `Singer`.`name` FROM `singer` STRAIGHT_JOIN song LIMIT 5, 10"),
        ("postgres", 'SELECT DISTINCT ON (s.id) s.name::text FROM "Singer" s, LATERAL (SELECT * FROM song) t'),
        ("oracle", "SELECT name FROM singer s, song t WHERE s.id = t.id(+) AND EXISTS (SELECT 1 FROM dual)"),
        ("tsql", "SELECT TOP 3 * FROM [dbo].[Singer] s CROSS APPLY (SELECT * FROM Song) t"),
        ("bigquery", "SELECT * FROM `Singer` s, UNNEST([1, 2]) AS n JOIN `Song` USING (id)"),
        ("snowflake", "SELECT * FROM singer QUALIFY row_number() OVER (ORDER BY id) IN (SELECT id FROM song)"),
        ("duckdb", "FROM singer SELECT * WHERE id IN (SELECT id FROM song)"),
    ],
)
def test_dialects(dialect: str, sql: str) -> None:
    assert gold_tables(sql, NAMES, dialect=dialect) == ["Singer", "Song"]


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM singr", "names a table that its database does not have: singr"),
        ("SELECT * FROM log", r"may be one of several: log of \['audit.log', 'main.log'\]"),
        ("SELECT FROM WHERE (", "cannot be parsed"),
        ("SELECT 1", "reads no table"),
        ("", "is not one query"),
        ("DELETE FROM singer", "is not one query"),
        ("SELECT " + "(" * 3000 + "1" + ")" * 3000 + " FROM singer", "cannot be parsed"),
        (" " * 1_000_001, "is too long"),
    ],
)
def test_nothing_is_guessed(sql: str, reason: str) -> None:
    with pytest.raises(UnreadableSqlError, match=reason):
        gold_tables(sql, NAMES)
    with pytest.raises(ValueError, match="`dialect` must be one of"):
        gold_tables(sql, NAMES, dialect="klingon")


@pytest.mark.parametrize(("name", "queries", "same"), [("spider", 8034, 8033), ("bird", 8135, 8135)])
def test_against_the_judgements_of_the_folders(datasets: Path, name: str, queries: int, same: int) -> None:
    given = Built(datasets / name, {})
    tables: dict[str, list[str]] = {}
    for doc in given.documents:
        tables.setdefault(doc["metadata"]["db_id"], []).append(doc["metadata"]["table"])
    names = {base: TableNames(found) for base, found in tables.items()}
    judged = {
        q: docs for path in (datasets / name / "qrels").glob("*.tsv") for q, docs in given.judged(path.stem).items()
    }
    equal, failed = 0, []
    for query in given.queries:
        base = query["metadata"]["db_id"]
        try:
            gold = gold_tables(query["metadata"]["sql"], names[base])
        except UnreadableSqlError:
            failed.append(query["_id"])
        else:
            equal += {f"{base}.{table}" for table in gold} == set(judged[query["_id"]])
    assert (len(judged), equal) == (queries, same)
    assert failed == (["spider-train-3153"] if name == "spider" else [])  # names a table that is not there
