"""Relevance judgements in BEIR's layout: ``qrels/<split>.tsv`` with the header ``query-id corpus-id score``.

A pool that was judged in a spreadsheet is ``qrels/<split>.csv``: the same columns first, further ones are not read, and
a row without a score was not judged.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from graphrerank.data.readers.auto_splits import AUTO, AUTO_DOCUMENTS, BOUNDS, divide_queries
from graphrerank.data.readers.documents import Query, read_queries
from graphrerank.data.readers.records import bad_line, check_columns, has_records, parse_number, read_csv, read_tsv

HEADER = ["query-id", "corpus-id", "score"]
Splits = str | Sequence[str] | Mapping[str, str] | None

_SLICE = re.compile(r"([^\[\]]+)(?:\[(?:(\d+)%)?:(?:(\d+)%)?\])?")


class Judgement(NamedTuple):
    """One row: a query's number, a node's number and a gain above 0."""

    query: int
    node: int
    gain: float


def qrels_files(folder: Path) -> dict[str, Path]:
    """Find the judgements of a data set by split: ``qrels/*.tsv`` and ``*.csv``, or TSV files next to the corpus.

    Raises:
        ValueError: If two files are of one split.
    """
    if (folder / "qrels").is_dir():
        found: dict[str, Path] = {}
        for path in sorted([*(folder / "qrels").glob("*.tsv"), *(folder / "qrels").glob("*.csv")]):
            if path.stem in found:
                raise ValueError(f"{path}: needed one file of a split, found {found[path.stem].name} too")
            found[path.stem] = path
        return found
    flat = [path for path in sorted(folder.glob("*.tsv")) if next(read_tsv(path), (0, []))[1] == HEADER]
    return {path.stem: path for path in flat}


def read_qrels(
    path: Path, query_number: Mapping[str, int], node_number: Mapping[str, int]
) -> tuple[list[Judgement], dict[int, int]]:
    """Read one file of judgements with the header ``query-id corpus-id score``; a score of 0 means judged not relevant.

    A node number of -1 marks a document that is left out.

    Returns:
        The judgements with a positive score, and for each judged query the first line that judges it.
    """
    rows: list[Judgement] = []
    first_line: dict[int, int] = {}
    pairs: set[tuple[str, str]] = set()
    header_read = False
    is_csv = path.suffix == ".csv"
    for line, cells in read_csv(path) if is_csv else read_tsv(path):
        columns = [cell.strip() for cell in cells[: len(HEADER)]] if is_csv else cells
        if is_csv and header_read and len(columns) == len(HEADER) and not columns[2]:
            continue
        if not header_read:
            if columns != HEADER:
                raise bad_line(path, line, needed=f"the header {' '.join(HEADER)!r}", found="\t".join(columns))
            header_read = True
            continue
        check_columns(path, line, columns, count=3, names=", ".join(HEADER))
        query, node = query_number.get(columns[0]), node_number.get(columns[1])
        if query is None:
            raise bad_line(path, line, needed="a query-id of the queries", found=columns[0])
        if node is None:
            raise bad_line(path, line, needed="a corpus-id of the corpus", found=columns[1])
        gain = parse_number(columns[2])
        if not gain >= 0:
            raise bad_line(path, line, needed="a score of 0 or more", found=columns[2])
        pair = (columns[0], columns[1])
        if pair in pairs:
            raise bad_line(
                path, line, needed="each query and document once", found=f"{pair[0]} {pair[1]} a second time"
            )
        pairs.add(pair)
        first_line.setdefault(query, line)
        if gain == 0:
            continue
        if node < 0:
            raise bad_line(
                path, line, needed="a document that `corpus_where` keeps (or name other `splits`)", found=columns[1]
            )
        rows.append(Judgement(query, node, gain))
    if not rows:
        raise ValueError(f"{path}: needed a score above 0 in at least one row, found none")
    return rows, first_line


def plan_splits(splits: Splits, files: Collection[str]) -> dict[str, tuple[str, int, int]]:
    """Choose for each split the file, and the percentages of its queries at which the split starts and stops.

    ``splits`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`, ``files`` the names of the existing
    files.
    """
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


def share_of_queries(rows: Sequence[Judgement], start: int, stop: int) -> list[Judgement]:
    """Keep the judgements of the queries from ``start`` to ``stop`` percent, in the order of their numbers.

    Example:
        >>> rows = [Judgement(query, 0, 1.0) for query in (7, 3, 5, 3)]
        >>> [row.query for row in share_of_queries(rows, 0, 67)]
        [3, 5, 3]
    """
    queries = sorted({row.query for row in rows})
    kept = set(queries[len(queries) * start // 100 : len(queries) * stop // 100])
    return [row for row in rows if row.query in kept]


def read_judged_queries(
    folder: Path, splits: Splits, node_number: Mapping[str, int]
) -> tuple[list[Query], dict[str, list[Judgement]]]:
    """Read the queries of a data set folder, and their judgements by split.

    ``splits`` are as of :meth:`~graphrerank.data.dataset.Dataset.from_folder`; unless None, only judged queries are
    kept. A node number of -1 marks a document that is left out. A folder with neither queries nor judgements is a
    corpus to search in.
    """
    if splits is None and not has_records(folder, "queries") and not qrels_files(folder):
        return [], {}  # a corpus to search in
    queries = list(read_queries(folder))
    query_number = {query.query_id: i for i, query in enumerate(queries)}
    judged = _read_splits(folder, splits, query_number, node_number, [query.text for query in queries])
    if splits is None:
        return queries, judged
    kept = sorted({row.query for rows in judged.values() for row in rows})
    renumbered = {query: i for i, query in enumerate(kept)}
    judged = {s: [row._replace(query=renumbered[row.query]) for row in rows] for s, rows in judged.items()}
    return [queries[query] for query in kept], judged


def _read_splits(
    folder: Path,
    splits: Splits,
    query_number: Mapping[str, int],
    node_number: Mapping[str, int],
    texts: Sequence[str],
) -> dict[str, list[Judgement]]:
    files = qrels_files(folder)
    divided = isinstance(splits, str) and splits in (AUTO, AUTO_DOCUMENTS)
    plan = plan_splits(None if divided else splits, files)
    rows: dict[str, list[Judgement]] = {}
    owner: dict[int, tuple[str, int]] = {}
    ids = list(query_number)
    for file in dict.fromkeys(file for file, _, _ in plan.values()):
        rows[file], first_line = read_qrels(files[file], query_number, node_number)
        for query, line in first_line.items():
            if query in owner:
                other = f"{ids[query]}, which {owner[query][0]} judges too (line {owner[query][1]})"
                raise bad_line(files[file], line, needed="a query of no other split", found=other)
            owner[query] = (files[file].name, line)
    if divided:
        return _divided([row for part in rows.values() for row in part], texts, by_documents=splits == AUTO_DOCUMENTS)
    judged = {split: share_of_queries(rows[file], start, stop) for split, (file, start, stop) in plan.items()}
    for split, part in judged.items():
        if not part:
            raise ValueError(f"`splits` must each hold a query, got none for {split!r} of {folder}")
    return judged


def _divided(rows: Sequence[Judgement], texts: Sequence[str], *, by_documents: bool) -> dict[str, list[Judgement]]:
    """Divide all judgements by :func:`divide_queries`."""
    relevant: dict[int, list[int]] = {}
    for row in rows:
        relevant.setdefault(row.query, []).append(row.node)
    queries = sorted(relevant)
    chosen = divide_queries(
        [texts[query] for query in queries], [relevant[query] for query in queries] if by_documents else None
    )
    split_of = dict(zip(queries, chosen, strict=True))
    return {split: [row for row in rows if split_of[row.query] == split] for split in BOUNDS}
