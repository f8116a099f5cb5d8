"""Candidates of the user's own retriever, looked up in its run file."""

import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

from graphrerank.checks import check_counts
from graphrerank.data.readers.run_candidates import read_run, run_feature_names
from graphrerank.files import hash_files
from graphrerank.graphs import CorpusGraph, Queries, Ranking


class RunRetriever:
    """Look candidates up in a file, a TREC run or JSONL (:func:`~graphrerank.data.readers.run_candidates.read_run`).

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
