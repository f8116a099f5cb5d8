"""Candidates of the user's own retriever, looked up in its run file."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import BaseModel, Field

from graphrerank.core import Queries, Ranking, Retriever
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.corpus import CorpusGraph
from graphrerank.data.readers.records import (
    MAX_FLOAT32,
    Id,
    bad_line,
    checked,
    parse_number,
    read_jsonl,
    read_lines,
    warn_left_out,
)
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import hash_files

BoundedNumber = Annotated[float, Field(strict=True, ge=-MAX_FLOAT32, le=MAX_FLOAT32)]
RunRow = tuple[int, str, str, Mapping[str, float]]  # line, query id, document id, score and features by name


class RunCandidate(BaseModel):
    """A candidate in a run of JSONL."""

    doc_id: Id
    score: BoundedNumber
    features: dict[str, BoundedNumber] | None = None


class RunLine(BaseModel):
    """A line of a run of JSONL."""

    query_id: Id
    candidates: list[RunCandidate]


def read_run(
    path: str | Path,
    *,
    query_ids: Sequence[str],
    node_ids: Sequence[str],
    top_k: int = 100,
    ignore_unknown_queries: bool = False,
    drop_unknown: bool = False,
) -> Ranking:
    """Read a run, ranked by score, ties by node order; a TREC run's own ranks are ignored.

    ``*.jsonl``, perhaps gzipped, has one query a line: ``{"query_id", "candidates": [{"doc_id", "score",
    "features"?}]}``, with the same named numbers as ``features`` of every candidate. Any other file is a TREC run,
    ``query-id Q0 doc-id rank score tag``, separated by blanks or tabs; ids may hold single blanks, a query's only where
    the second column is ``Q0``. A ValueError names file and line of what does not fit, or the file without candidates.
    Equal candidates count once, and with ``drop_unknown`` those of unknown queries and documents are left out; a
    warning counts both.

    Returns:
        ``[Q, top_k]`` with features ``[Q, top_k, F]``, the first of which is the run's score; a query without
        candidates is all padding.
    """
    check_counts(top_k=top_k)
    path = Path(path)
    query_number = {query_id: i for i, query_id in enumerate(query_ids)}
    node_number = {node_id: i for i, node_id in enumerate(node_ids)}
    names: list[str] = []
    rows: dict[int, list[float]] = {}  # by query * N + node
    line_of: dict[int, int] = {}
    left_out: defaultdict[str, list[int]] = defaultdict(list)
    for line, query_id, doc_id, numbers in _read_rows(path):
        names = names or list(numbers)
        if numbers.keys() != set(names):
            found = [name for name in numbers if name != BASE_SCORE]
            raise bad_line(path, line, needed=f"the features {names[1:]} of every candidate", actual=found)
        query, node = query_number.get(query_id), node_number.get(doc_id)
        if query is None or node is None:
            what, unknown = ("query of the data set", query_id) if query is None else ("document of the corpus", doc_id)
            if not (drop_unknown or (query is None and ignore_unknown_queries)):
                raise bad_line(path, line, needed=f"a {what} (or `drop_unknown`)", actual=unknown)
            if drop_unknown:
                left_out[f"a {what.split()[0]} that is not in the data set"].append(line)
            continue
        key = query * len(node_ids) + node
        row = [numbers[name] for name in names]
        if rows.setdefault(key, row) != row:
            again = f"{doc_id} a second time for query {query_id}, with another score than in line {line_of[key]}"
            raise bad_line(path, line, needed="each document once per query", actual=again)
        if line_of.setdefault(key, line) != line:
            left_out["a candidate that came before"].append(line)
    warn_left_out(path, left_out)
    if not rows:
        raise UserError(f"{path}: needed a candidate for at least one of {len(query_ids)} queries, found none")
    of_query, node_of = np.divmod(np.array(list(rows), dtype=np.int64), len(node_ids))
    table = np.array(list(rows.values()), dtype=np.float32)
    order = np.lexsort((node_of, -table[:, 0], of_query))
    of_query, node_of, table = of_query[order], node_of[order], table[order]
    rank = np.arange(len(order)) - np.searchsorted(of_query, of_query)
    kept = rank < top_k
    at = of_query[kept], rank[kept]
    nodes = np.full((len(query_ids), top_k), -1, dtype=np.int64)
    scores = np.full((len(query_ids), top_k), -np.inf, dtype=np.float32)
    features = np.zeros((len(query_ids), top_k, table.shape[1]), dtype=np.float32)
    nodes[at], scores[at], features[at] = node_of[kept], table[kept, 0], table[kept]
    return Ranking(torch.from_numpy(nodes), torch.from_numpy(scores), torch.from_numpy(features))


def _read_rows(path: Path) -> Iterator[RunRow]:
    if path.name.endswith((".jsonl", ".jsonl.gz")):
        yield from _read_jsonl_rows(path)
        return
    for line, text in read_lines(path):
        by_tabs = "\t" in text
        columns = [column.strip() for column in text.split("\t")] if by_tabs else [c for c in text.split(" ") if c]
        if len(columns) < 6 or (by_tabs and len(columns) > 6):
            raise bad_line(path, line, needed="6 columns (query-id Q0 doc-id rank score tag)", actual=text)
        score = parse_number(columns[-2])
        if math.isnan(score):
            raise bad_line(path, line, needed="a finite number as score", actual=columns[-2])
        second = columns.index("Q0", 1) if "Q0" in columns[1:-4] else 1
        yield line, " ".join(columns[:second]), " ".join(columns[second + 1 : -3]), {BASE_SCORE: score}


def _read_jsonl_rows(path: Path) -> Iterator[RunRow]:
    queries: set[str] = set()
    for line, record in read_jsonl(path):
        read = checked(path, line, record, RunLine)
        if read.query_id in queries:
            raise bad_line(path, line, needed="each query on one line", actual=f"{read.query_id} a second time")
        queries.add(read.query_id)
        for candidate in read.candidates:
            features = candidate.features or {}
            if BASE_SCORE in features:
                needed = f"features of other names than {BASE_SCORE}"
                raise bad_line(path, line, needed=needed, actual=list(features))
            yield line, read.query_id, candidate.doc_id, {BASE_SCORE: candidate.score, **features}


class RunRetriever(Retriever):
    """Look candidates up in a file, a TREC run or JSONL (:func:`~graphrerank.data.run_retriever.read_run`).

    Features: the run's score as ``base_score``, and those of a JSONL run's candidates. Reads no vectors. Queries of the
    run that are not in the data set are an error unless ``ignore_unknown_queries``, and unknown
    documents too unless ``drop_unknown``, which leaves out both and counts them.
    """

    is_lookup = True

    def __init__(
        self,
        graph: CorpusGraph,
        *,
        path: str | Path,
        top_k: int = 100,
        ignore_unknown_queries: bool = False,
        drop_unknown: bool = False,
    ) -> None:
        check_counts(top_k=top_k)
        self.path = Path(path)
        self.top_k = top_k
        self.ignore_unknown_queries, self.drop_unknown = ignore_unknown_queries, drop_unknown
        self.feature_names = next((tuple(numbers) for *_, numbers in _read_rows(self.path)), (BASE_SCORE,))
        self._node_ids = graph.node_ids

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False: a run is read without vectors."""
        return False

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return hash_files([self.path])

    def retrieve(self, queries: Queries) -> Ranking:
        """Look up the candidates of each query by its id: ``[B, top_k]``; a warning names queries without any."""
        ranking = read_run(
            self.path,
            query_ids=queries.ids,
            node_ids=self._node_ids,
            top_k=self.top_k,
            ignore_unknown_queries=self.ignore_unknown_queries,
            drop_unknown=self.drop_unknown,
        )
        if without := [queries.ids[query] for query in (ranking.nodes[:, 0] < 0).nonzero().flatten().tolist()]:
            listed = ", ".join(without[:3]) + (", ..." if len(without) > 3 else "")
            found = f"candidates for {len(queries) - len(without):,} of {len(queries):,} queries; none for {listed}"
            warnings.warn(f"{self.path}: {found}", stacklevel=2)
        return ranking
