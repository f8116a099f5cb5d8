"""Candidates of the user's own retriever, looked up in its run file."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphrerank.checks import check_counts
from graphrerank.data.readers.records import LARGEST, bad_line, parse_number, read_jsonl, read_lines
from graphrerank.files import hash_files
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.graphs.retriever import BASE_SCORE

_Candidate = tuple[int, str, str, tuple[float, ...]]  # line, query id, document id, score and features


@dataclass(frozen=True)
class RunCandidates:
    """A run's candidates for the queries of a data set."""

    ranking: Ranking  # `[Q, top_k]` with `features [Q, top_k, F]`; a query without candidates is all padding
    feature_names: tuple[str, ...]  # names of the `F` features; the first is the run's own score
    without: tuple[str, ...]  # ids of the queries without candidates
    ignored: int  # number of the run's queries that are not in the data set

    def summary(self) -> str:
        """Describe the candidates in one line."""
        queries = len(self.ranking)
        listed = int((self.ranking.nodes >= 0).sum())
        line = f"{listed:,} candidates for {queries - len(self.without):,} of {queries:,} queries"
        if self.without:
            line += f"; none for {', '.join(self.without[:3])}{', ...' if len(self.without) > 3 else ''}"
        return line + (f"; {self.ignored:,} queries of other data ignored" if self.ignored else "")


def read_run(
    path: str | Path,
    *,
    query_ids: Sequence[str],
    node_ids: Sequence[str],
    top_k: int = 100,
    ignore_unknown_queries: bool = False,
) -> RunCandidates:
    """Read a run, ranked by score, ties by node order; a TREC run's own ranks are ignored.

    ``*.jsonl``, perhaps gzipped, has one query a line: ``{"query_id", "candidates": [{"doc_id", "score",
    "features"?}]}``, with the same named numbers as ``features`` of every candidate. Any other file is a TREC run,
    ``query-id Q0 doc-id rank score tag``, separated by blanks or tabs; ids may hold single blanks, a query's only where
    the second column is ``Q0``.

    Args:
        path: The file.
        query_ids: ``Q`` ids of the data set's queries.
        node_ids: ``N`` ids of the corpus.
        top_k: Candidates to keep per query, at least 1.
        ignore_unknown_queries: Whether queries that are not in the data set are ignored; an error otherwise.

    Raises:
        ValueError: Naming file and line, if a line is malformed, an id is unknown, a document is listed twice for a
            query, a score or feature is not a finite number, or the features' names differ; or if no query of the data
            set has a candidate.
    """
    check_counts(top_k=top_k)
    path = Path(path)
    query_number = {query_id: i for i, query_id in enumerate(query_ids)}
    node_number = {node_id: i for i, node_id in enumerate(node_ids)}
    feature_names: list[str] = [BASE_SCORE]
    candidates = _read_jsonl_run(path, feature_names) if _is_jsonl(path) else _read_trec_run(path)
    keys: list[int] = []  # query * N + node
    features: list[tuple[float, ...]] = []
    listed: set[int] = set()
    ignored: set[str] = set()
    for line, query_id, doc_id, values in candidates:
        query, node = query_number.get(query_id), node_number.get(doc_id)
        if query is None:
            if not ignore_unknown_queries:
                needed = "a query of the data set (or `ignore_unknown_queries`)"
                raise bad_line(path, line, needed=needed, found=query_id)
            ignored.add(query_id)
            continue
        if node is None:
            raise bad_line(path, line, needed="a document of the corpus", found=doc_id)
        key = query * len(node_ids) + node
        if key in listed:
            again = f"{doc_id} a second time for query {query_id}"
            raise bad_line(path, line, needed="each document once per query", found=again)
        listed.add(key)
        keys.append(key)
        features.append(values)
    if not keys:
        raise ValueError(f"{path}: needed a candidate for at least one of {len(query_ids)} queries, found none")
    ranking = _rank(keys, features, len(query_ids), len(node_ids), top_k)
    without = tuple(query_ids[query] for query in (ranking.nodes[:, 0] < 0).nonzero().flatten().tolist())
    return RunCandidates(ranking, tuple(feature_names), without, len(ignored))


def run_feature_names(path: str | Path) -> tuple[str, ...]:
    """Name the features of a run's candidates, from its first candidate."""
    path = Path(path)
    names = [BASE_SCORE]
    if _is_jsonl(path):
        next(_read_jsonl_run(path, names), None)
    elif not path.is_file():
        raise ValueError(f"{path}: no such file")
    return tuple(names)


def _is_jsonl(path: Path) -> bool:
    return path.name.endswith((".jsonl", ".jsonl.gz"))


def _rank(
    keys: Sequence[int], rows: Sequence[tuple[float, ...]], num_queries: int, num_nodes: int, top_k: int
) -> Ranking:
    """Sort the candidates of each query by score, then node, into a padded table."""
    query, node = np.divmod(np.array(keys, dtype=np.int64), num_nodes)
    table = np.array(rows, dtype=np.float32)
    order = np.lexsort((node, -table[:, 0], query))
    query, node, table = query[order], node[order], table[order]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    kept = rank < top_k
    query, rank = query[kept], rank[kept]
    nodes = np.full((num_queries, top_k), -1, dtype=np.int64)
    scores = np.full((num_queries, top_k), -np.inf, dtype=np.float32)
    features = np.zeros((num_queries, top_k, table.shape[1]), dtype=np.float32)
    nodes[query, rank], scores[query, rank], features[query, rank] = node[kept], table[kept, 0], table[kept]
    return Ranking(torch.from_numpy(nodes), torch.from_numpy(scores), torch.from_numpy(features))


def _read_trec_run(path: Path) -> Iterator[_Candidate]:
    for line, text in read_lines(path):
        by_tabs = "\t" in text
        columns = [column.strip() for column in text.split("\t")] if by_tabs else [c for c in text.split(" ") if c]
        if len(columns) < 6 or (by_tabs and len(columns) > 6):
            raise bad_line(path, line, needed="6 columns (query-id Q0 doc-id rank score tag)", found=text)
        score = parse_number(columns[-2])
        if math.isnan(score):
            raise bad_line(path, line, needed="a finite number as score", found=columns[-2])
        second = columns.index("Q0", 1) if "Q0" in columns[1:-4] else 1
        yield line, " ".join(columns[:second]), " ".join(columns[second + 1 : -3]), (score,)


def _read_jsonl_run(path: Path, feature_names: list[str]) -> Iterator[_Candidate]:
    """Read JSONL candidates; add the first candidate's feature names to ``feature_names``."""
    queries: set[str] = set()
    names: list[str] | None = None
    for line, record in read_jsonl(path):
        query_id, candidates = record.get("query_id"), record.get("candidates")
        if not isinstance(query_id, str) or not isinstance(candidates, list):
            raise bad_line(path, line, needed="a string `query_id` and a list `candidates`", found=record)
        if query_id in queries:
            raise bad_line(path, line, needed="each query on one line", found=f"{query_id} a second time")
        queries.add(query_id)
        for candidate in candidates:
            doc_id = candidate.get("doc_id") if isinstance(candidate, dict) else None
            features = candidate.get("features") or {} if isinstance(candidate, dict) else None
            if not isinstance(doc_id, str) or not isinstance(features, dict):
                needed = "candidates with a string `doc_id`, a `score` and perhaps an object `features`"
                raise bad_line(path, line, needed=needed, found=candidate)
            if names is None:
                names = list(features)
                feature_names += names
                if BASE_SCORE in names:
                    raise bad_line(path, line, needed=f"features of other names than {BASE_SCORE}", found=names)
            if features.keys() != set(names):
                raise bad_line(path, line, needed=f"the features {names} of every candidate", found=list(features))
            numbers = _numbers(
                path, line, {"score": candidate.get("score"), **{name: features[name] for name in names}}
            )
            yield line, query_id, doc_id, numbers


def _numbers(path: Path, line: int, named: Mapping[str, object]) -> tuple[float, ...]:
    for name, number in named.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) <= LARGEST:
            raise bad_line(path, line, needed=f"a finite number as {name!r}", found=number)
    return tuple(float(number) for number in named.values())  # type: ignore[arg-type]


class RunRetriever:
    """Look candidates up in a file, a TREC run or JSONL (:func:`~graphrerank.data.run_retriever.read_run`).

    Features: the run's score as ``base_score``, and those of a JSONL run's candidates. Reads no vectors.

    Args:
        graph: The corpus that the run ranks.
        path: The file.
        top_k: Candidates to keep per query.
        ignore_unknown_queries: Whether queries of the run that are not in the data set are ignored; an error otherwise.

    Raises:
        ValueError: If there is no such file, or a line of JSONL up to the first candidate is malformed.
    """

    is_lookup = True

    def __init__(
        self, graph: CorpusGraph, *, path: str | Path, top_k: int = 100, ignore_unknown_queries: bool = False
    ) -> None:
        check_counts(top_k=top_k)
        self.path = Path(path)
        self.top_k = top_k
        self.ignore_unknown_queries = ignore_unknown_queries
        self.feature_names = run_feature_names(self.path)
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
        """Look up the candidates of each of ``B`` queries by its id; texts and vectors are not read.

        Returns:
            ``[B, top_k]`` nodes and the run's scores, with ``features [B, top_k, F]`` as in ``feature_names``. A query
            without candidates is all padding, and a warning names it.
        """
        run = read_run(
            self.path,
            query_ids=queries.ids,
            node_ids=self._node_ids,
            top_k=self.top_k,
            ignore_unknown_queries=self.ignore_unknown_queries,
        )
        if run.without:
            warnings.warn(f"{self.path}: {run.summary()}", stacklevel=2)
        return run.ranking
