"""Retriever that looks candidates up in a run file, the output of any other retriever."""

import math
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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


class RunRow(NamedTuple):
    """Candidate in a run file.

    Attributes:
        line: Line number.
        query_id: Id of the query.
        doc_id: Id of the document.
        numbers: Score (``base_score``) and additional features by name.
    """

    line: int
    query_id: str
    doc_id: str
    numbers: Mapping[str, float]


class RunCandidate(BaseModel):
    """Candidate in a JSONL run.

    Attributes:
        doc_id: Id of the document.
        score: Score of the document.
        features: Additional features by name. None if there are none.
    """

    doc_id: Id
    score: BoundedNumber
    features: dict[str, BoundedNumber] | None = None


class RunLine(BaseModel):
    """Line of a JSONL run.

    Attributes:
        query_id: Id of the query.
        candidates: Candidates of the query.
    """

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
    """Read a run file. Candidates are ranked by score and, for equal scores, by passage number.

    A file ``*.jsonl`` or ``*.jsonl.gz`` has one query per line: ``{"query_id", "candidates": [{"doc_id", "score",
    "features"?}]}``. All candidates must have the same ``features``, which are numbers by name. Any other file is a
    TREC run, ``query-id Q0 doc-id rank score tag``, separated by spaces or tabs. Its ranks are ignored. Document ids
    may contain single spaces, and query ids too if the second column is ``Q0``. Duplicate candidates are counted once,
    with a warning.

    Args:
        path: Run file.
        query_ids: Ids of the ``Q`` queries.
        node_ids: Ids of the passages.
        top_k: Maximum number of candidates per query.
        ignore_unknown_queries: Whether to ignore queries of the run that are not in ``query_ids``. By default, they
            raise an error.
        drop_unknown: Whether to ignore unknown queries and documents with a warning. By default, they raise an error.

    Returns:
        Ranking ``[Q, top_k]`` with features ``[Q, top_k, F]``, the first of which is the score. Queries without
        candidates are padded.

    Raises:
        ValueError: If a line is invalid, or if there is no candidate. The message names file and line.
    """
    check_counts(top_k=top_k)
    path = Path(path)
    candidates = _read_candidates(
        path,
        query_number={query_id: number for number, query_id in enumerate(query_ids)},
        node_number={node_id: number for number, node_id in enumerate(node_ids)},
        ignore_unknown_queries=ignore_unknown_queries,
        drop_unknown=drop_unknown,
    )
    if not candidates:
        raise UserError(f"{path}: expected a candidate for at least one of {len(query_ids)} queries, got none")
    query_of_row, node_of_row = np.array(list(candidates), dtype=np.int64).T
    numbers = np.array(list(candidates.values()), dtype=np.float32)
    order = np.lexsort((node_of_row, -numbers[:, 0], query_of_row))
    query_of_row = query_of_row[order]
    rank = np.arange(len(order)) - np.searchsorted(query_of_row, query_of_row)
    is_top = rank < top_k
    position = query_of_row[is_top], rank[is_top]
    top_numbers = numbers[order][is_top]
    nodes = np.full((len(query_ids), top_k), -1, dtype=np.int64)
    nodes[position] = node_of_row[order][is_top]
    scores = np.full((len(query_ids), top_k), -np.inf, dtype=np.float32)
    scores[position] = top_numbers[:, 0]
    features = np.zeros((len(query_ids), top_k, numbers.shape[1]), dtype=np.float32)
    features[position] = top_numbers
    return Ranking(torch.from_numpy(nodes), torch.from_numpy(scores), torch.from_numpy(features))


def _read_candidates(
    path: Path,
    *,
    query_number: Mapping[str, int],
    node_number: Mapping[str, int],
    ignore_unknown_queries: bool,
    drop_unknown: bool,
) -> dict[tuple[int, int], list[float]]:
    """Return the score and the features of each candidate, by query number and passage number."""
    names: list[str] = []
    candidates: dict[tuple[int, int], list[float]] = {}
    first_line: dict[tuple[int, int], int] = {}
    left_out: defaultdict[str, list[int]] = defaultdict(list)
    for line, query_id, doc_id, numbers in _read_rows(path):
        names = names or list(numbers)
        if numbers.keys() != set(names):
            feature_names = [name for name in numbers if name != BASE_SCORE]
            raise bad_line(path, line, needed=f"the features {names[1:]} for every candidate", actual=feature_names)
        query = query_number.get(query_id)
        node = node_number.get(doc_id)
        if query is None or node is None:
            kind, unknown = ("query of the data set", query_id) if query is None else ("document of the corpus", doc_id)
            if not (drop_unknown or (query is None and ignore_unknown_queries)):
                raise bad_line(path, line, needed=f"a {kind} (or `drop_unknown`)", actual=unknown)
            if drop_unknown:
                left_out[f"unknown {kind.split()[0]}"].append(line)
            continue
        pair = (query, node)
        row = [numbers[name] for name in names]
        if candidates.setdefault(pair, row) != row:
            duplicate = f"{doc_id} for query {query_id} with a different score in line {first_line[pair]}"
            raise bad_line(path, line, needed="each document once per query", actual=duplicate)
        if first_line.setdefault(pair, line) != line:
            left_out["duplicate candidate"].append(line)
    warn_left_out(path, left_out)
    return candidates


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
        query_id = " ".join(columns[:second])
        doc_id = " ".join(columns[second + 1 : -3])
        yield RunRow(line, query_id, doc_id, {BASE_SCORE: score})


def _read_jsonl_rows(path: Path) -> Iterator[RunRow]:
    queries: set[str] = set()
    for line, record in read_jsonl(path):
        run_line = checked(path, line, record, RunLine)
        query_id = run_line.query_id
        if query_id in queries:
            raise bad_line(path, line, needed="each query on one line", actual=f"{query_id} (duplicate)")
        queries.add(query_id)
        for candidate in run_line.candidates:
            features = candidate.features or {}
            if BASE_SCORE in features:
                raise bad_line(path, line, needed=f"no feature named {BASE_SCORE}", actual=list(features))
            yield RunRow(line, query_id, candidate.doc_id, {BASE_SCORE: candidate.score, **features})


class RunRetriever(Retriever):
    """Retriever that looks candidates up in a TREC or JSONL run (:func:`read_run`).

    The features are the run's score as ``base_score``, and the features of a JSONL run. No vectors are needed.

    Args:
        graph: Corpus graph.
        path: Run file.
        top_k: Maximum number of candidates per query.
        ignore_unknown_queries: Whether to ignore queries of the run that are not in the data set. By default, they
            raise an error.
        drop_unknown: Whether to ignore unknown queries and documents with a warning. By default, they raise an error.

    Raises:
        ValueError: If ``top_k`` is not positive, or if the file is missing or malformed.
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
        first_row = next(_read_rows(self.path), None)
        self.feature_names = (BASE_SCORE,) if first_row is None else tuple(first_row.numbers)
        self._node_ids = graph.node_ids

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, because a run file needs no vectors."""
        return False

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return hash_files([self.path])

    def retrieve(self, queries: Queries) -> Ranking:
        """Look up the candidates of each query by its id.

        Args:
            queries: ``B`` queries. A warning names queries without candidates.

        Returns:
            Ranking ``[B, top_k]``.

        Raises:
            ValueError: If the file is malformed or contains unknown ids.
        """
        ranking = read_run(
            self.path,
            query_ids=queries.ids,
            node_ids=self._node_ids,
            top_k=self.top_k,
            ignore_unknown_queries=self.ignore_unknown_queries,
            drop_unknown=self.drop_unknown,
        )
        rows_without = (ranking.nodes[:, 0] < 0).nonzero().flatten().tolist()
        if rows_without:
            ids = ", ".join(queries.ids[row] for row in rows_without[:3]) + (", ..." if len(rows_without) > 3 else "")
            num_with = len(queries) - len(rows_without)
            counts = f"candidates for {num_with:,} of {len(queries):,} queries; none for {ids}"
            warnings.warn(f"{self.path}: {counts}", stacklevel=2)
        return ranking
