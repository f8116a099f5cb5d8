"""Queries of a data set folder, and their judgements by split."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from graphrerank.data.readers.auto_splits import AUTO, AUTO_DOCUMENTS, BOUNDS, divide_queries
from graphrerank.data.readers.documents import Query, read_queries
from graphrerank.data.readers.judgements import (
    Judgement,
    Splits,
    plan_splits,
    qrels_files,
    read_qrels,
    share_of_queries,
)
from graphrerank.data.readers.records import bad_line, has_records


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
