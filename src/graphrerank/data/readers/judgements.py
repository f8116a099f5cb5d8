"""Relevance judgements in BEIR's layout: ``qrels/<split>.tsv`` with the header ``query-id corpus-id score``.

A pool that was judged in a spreadsheet is ``qrels/<split>.csv``: the same columns first, further ones are not read, and
a row without a score was not judged.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphrerank.data.readers.auto_splits import AUTO, AUTO_DOCUMENTS, BOUNDS, divide_queries
from graphrerank.data.readers.documents import Query, read_queries
from graphrerank.data.readers.records import (
    bad_line,
    check_columns,
    find_record_files,
    parse_number,
    read_csv,
    read_tsv,
)

HEADER = ["query-id", "corpus-id", "score"]
Splits = str | Sequence[str] | Mapping[str, str] | None

_SLICE = re.compile(r"([^\[\]]+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?")


class Judgement(NamedTuple):
    """One row: a query's number, a node's number and a gain above 0."""

    query: int
    node: int
    gain: float


def qrels_files(folder: Path) -> dict[str, Path]:
    """Find the judgements of a data set by split: ``qrels/*.tsv`` and ``*.csv``, or TSV files next to the corpus."""
    if not (folder / "qrels").is_dir():
        flat = [path for path in sorted(folder.glob("*.tsv")) if next(read_tsv(path), (0, []))[1] == HEADER]
        return {path.stem: path for path in flat}
    found: dict[str, Path] = {}
    for path in sorted([*(folder / "qrels").glob("*.tsv"), *(folder / "qrels").glob("*.csv")]):
        if path.stem in found:
            raise ValueError(f"{path}: needed one file of a split, found {found[path.stem].name} too")
        found[path.stem] = path
    return found


def read_qrels(
    path: Path, query_number: Mapping[str, int], node_number: Mapping[str, int]
) -> tuple[list[Judgement], dict[int, int]]:
    """Read a file of judgements: those with a positive score, and for each judged query the first line that judges it.

    A node number of -1 marks a document that is left out.
    """
    rows: list[Judgement] = []
    first_line: dict[int, int] = {}
    pairs: set[tuple[str, str]] = set()
    is_csv = path.suffix == ".csv"
    lines = read_csv(path) if is_csv else read_tsv(path)
    for number, (line, cells) in enumerate(lines):
        columns = [cell.strip() for cell in cells[: len(HEADER)]] if is_csv else cells
        if number == 0:
            if columns != HEADER:
                raise bad_line(path, line, needed=f"the header {' '.join(HEADER)!r}", found="\t".join(columns))
            continue
        if is_csv and len(columns) == len(HEADER) and not columns[2]:
            continue
        check_columns(path, line, columns, count=3, names=", ".join(HEADER))
        query, node, gain = query_number.get(columns[0]), node_number.get(columns[1]), parse_number(columns[2])
        if query is None:
            raise bad_line(path, line, needed="a query-id of the queries", found=columns[0])
        if node is None:
            raise bad_line(path, line, needed="a corpus-id of the corpus", found=columns[1])
        if not gain >= 0:
            raise bad_line(path, line, needed="a score of 0 or more", found=columns[2])
        pair = (columns[0], columns[1])
        if pair in pairs:
            found = f"{pair[0]} {pair[1]} a second time"
            raise bad_line(path, line, needed="each query and document once", found=found)
        pairs.add(pair)
        first_line.setdefault(query, line)
        if gain > 0 and node < 0:
            needed = "a document that `corpus_where` keeps (or name other `splits`)"
            raise bad_line(path, line, needed=needed, found=columns[1])
        if gain > 0:
            rows.append(Judgement(query, node, gain))
    if not rows:
        raise ValueError(f"{path}: needed a score above 0 in at least one row, found none")
    return rows, first_line


def plan_splits(splits: Splits, files: Collection[str]) -> dict[str, tuple[str, int, int]]:
    """Choose for each split the file, and the percentages of its queries at which the split starts and stops."""
    if isinstance(splits, str):
        raise ValueError(f"`splits` must be a list of names, a mapping, auto or auto_documents, got {splits!r}")
    names = list(files) if splits is None else splits
    source_of = names if isinstance(names, Mapping) else {name: name for name in names}
    plan = {}
    for name, source in source_of.items():
        parts = _SLICE.fullmatch(source)
        file = parts[1] if parts else source
        if file not in files:
            raise ValueError(f"`splits` must be of {sorted(files)} (files of qrels), got {source!r} for {name!r}")
        assert parts is not None
        start, stop = int(parts[2] or 0), int(parts[3] or 100)
        if not 0 <= start < stop <= 100:
            raise ValueError(f"`splits` must take a share between 0% and 100%, got {source!r} for {name!r}")
        plan[name] = (file, start, stop)
    return plan


def read_judged_queries(
    folder: Path, splits: Splits, node_number: Mapping[str, int]
) -> tuple[list[Query], dict[str, list[Judgement]]]:
    """Read the queries of a data set folder, and their judgements by split.

    ``splits`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`; unless None, only judged queries are
    kept. A node number of -1 marks a document that is left out. A folder with neither queries nor judgements is a
    corpus to search in.
    """
    files = qrels_files(folder)
    if splits is None and not files and not find_record_files(folder, "queries", required=False):
        return [], {}
    queries = list(read_queries(folder))
    query_number = {query.query_id: i for i, query in enumerate(queries)}
    divided = isinstance(splits, str) and splits in (AUTO, AUTO_DOCUMENTS)
    plan = plan_splits(None if divided else splits, files)
    rows_of: dict[str, list[Judgement]] = {}
    owner: dict[int, tuple[str, int]] = {}
    for file in dict.fromkeys(file for file, _, _ in plan.values()):
        rows_of[file], first_line = read_qrels(files[file], query_number, node_number)
        for query, line in first_line.items():
            if query in owner:
                other = f"{queries[query].query_id}, which {owner[query][0]} judges too (line {owner[query][1]})"
                raise bad_line(files[file], line, needed="a query of no other split", found=other)
            owner[query] = (files[file].name, line)
    if divided:
        judged = _divided(rows_of.values(), queries, by_documents=splits == AUTO_DOCUMENTS)
    else:
        judged = {split: _share(rows_of[file], start, stop) for split, (file, start, stop) in plan.items()}
    for split, part in judged.items():
        if not part:
            raise ValueError(f"`splits` must each hold a query, got none for {split!r} of {folder}")
    if splits is None:
        return queries, judged
    kept = sorted({row.query for rows in judged.values() for row in rows})
    renumbered = {query: i for i, query in enumerate(kept)}
    judged = {s: [row._replace(query=renumbered[row.query]) for row in rows] for s, rows in judged.items()}
    return [queries[query] for query in kept], judged


def _share(rows: Sequence[Judgement], start: int, stop: int) -> list[Judgement]:
    """Keep the judgements of the queries from ``start`` to ``stop`` percent, in the order of their numbers."""
    queries = sorted({row.query for row in rows})
    kept = set(queries[len(queries) * start // 100 : len(queries) * stop // 100])
    return [row for row in rows if row.query in kept]


def _divided(
    parts: Iterable[Sequence[Judgement]], queries: Sequence[Query], *, by_documents: bool
) -> dict[str, list[Judgement]]:
    """Divide all judgements by :func:`divide_queries`."""
    rows = [row for part in parts for row in part]
    relevant: dict[int, list[int]] = {}
    for row in rows:
        relevant.setdefault(row.query, []).append(row.node)
    judged = sorted(relevant)
    documents = [relevant[query] for query in judged] if by_documents else None
    split_of = dict(zip(judged, divide_queries([queries[query].text for query in judged], documents), strict=True))
    return {split: [row for row in rows if split_of[row.query] == split] for split in BOUNDS}
