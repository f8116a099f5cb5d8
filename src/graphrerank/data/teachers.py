"""Teachers of distillation: a cross-encoder, a run file, or a column of soft labels in the judgements."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.core import PairEncoder
from graphrerank.core.adapters import as_pair_encoder
from graphrerank.data.candidates import PreparedDataset, cross_encoder_scores
from graphrerank.data.qrels import look_up, pair_keys
from graphrerank.data.readers.judgements import qrels_files, read_soft_labels, soft_label_columns
from graphrerank.data.run_retriever import read_run
from graphrerank.data.vector_cache import PairCache
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.files import hash_files

UNSCORED = ("lowest", "ignore")  # choices for candidates that a teacher has not scored
RUN_DEPTH = 1000  # Maximum number of documents per query that are read from a run file.
Paths = str | Path | Mapping[str, str | Path]  # One file, or files by the name of the data set.


@dataclass(frozen=True, kw_only=True)
class Teacher(ABC):
    """Base of teachers, whose scores a reranker learns to reproduce (distillation).

    A subclass implements :attr:`fingerprint` and :meth:`score`.

    Attributes:
        unscored: Score of the candidates of a query that the teacher has not scored. ``"lowest"`` uses the lowest score
            of the query, and ``"ignore"`` leaves the candidates out of the distillation losses.
        allow_missing: Whether queries without scores are trained on too, with their judgements alone. By default, they
            are an error.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class ShortestPassage(Teacher):
        ...     fingerprint = "shortest passage"
        ...
        ...     def score(self, prepared, queries):
        ...         nodes = prepared.ranking.nodes[queries]
        ...         lengths = torch.tensor([float(len(text)) for text in prepared.dataset.graph.texts])
        ...         return torch.where(nodes >= 0, -lengths[nodes], torch.nan)
        >>> ShortestPassage().unscored
        'lowest'
    """

    unscored: str = "lowest"
    allow_missing: bool = False

    def __post_init__(self) -> None:
        check_choice(UNSCORED, unscored=self.unscored)

    @property
    def name(self) -> str:
        """Short name for messages. Defaults to the name of the class."""
        return type(self).__name__

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """String that changes whenever the scores change. It is recorded in the manifest."""

    @abstractmethod
    def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
        """Score the candidates of queries.

        Args:
            prepared: Data set with candidates.
            queries: Query numbers ``[B]``.

        Returns:
            Scores ``[B, K]`` float32 of any scale, NaN for padding and for candidates without a score.
        """


@dataclass(frozen=True, kw_only=True)
class CrossEncoderTeacher(Teacher):
    """Teacher that scores candidates with a cross-encoder.

    Attributes:
        pair_encoder: Cross-encoder. Training functions wrap it in the cache of pairs, so that no pair is read twice.
        top_k: Number of top candidates per query to score. If None, all candidates are scored.
        unscored: Score of the candidates after the first ``top_k`` (:class:`Teacher`).
        allow_missing: Whether queries without scores are trained on too (:class:`Teacher`).

    Raises:
        UserError: If ``top_k`` is below 2, because a single score has no order.
    """

    pair_encoder: PairEncoder
    top_k: int | None = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(top_k=self.top_k)
        if self.top_k == 1:
            raise UserError("`top_k` of a teacher must be at least 2, got 1")
        object.__setattr__(self, "pair_encoder", as_pair_encoder(self.pair_encoder))

    @property
    def name(self) -> str:
        """Name of the cross-encoder."""
        return self.pair_encoder.name

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the cross-encoder and ``top_k``."""
        return hashlib.sha256(f"{self.pair_encoder.fingerprint} {self.top_k}".encode()).hexdigest()

    def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
        """Return the logits of the cross-encoder for the top candidates.

        Args:
            prepared: Data set with candidates.
            queries: Query numbers ``[B]``.

        Returns:
            Logits ``[B, K]``, NaN after the first ``top_k`` candidates.
        """
        if isinstance(self.pair_encoder, PairCache):  # reports the number of pairs and the time
            self.pair_encoder.read_ahead(*prepared.pairs(queries, top_k=self.top_k))
        return cross_encoder_scores(prepared, self.pair_encoder, queries, top_k=self.top_k)


@dataclass(frozen=True, kw_only=True)
class RunTeacher(Teacher):
    """Teacher that looks scores up in a run file, the output of any reranker.

    Attributes:
        path: TREC or JSONL run (:func:`~graphrerank.data.run_retriever.read_run`), or a mapping from the name of a data
            set to its run. Queries of the run that are not in the data set are ignored.
        drop_unknown: Whether to ignore unknown documents with a warning. By default, they are an error.
        unscored: Score of the candidates that the run does not contain (:class:`Teacher`).
        allow_missing: Whether queries without scores are trained on too (:class:`Teacher`).
    """

    path: Paths
    drop_unknown: bool = False

    @property
    def name(self) -> str:
        """Path of the run."""
        return _names(self.path)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the files."""
        return hash_files(_all_paths(self.path))

    def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
        """Return the scores of the run.

        Args:
            prepared: Data set with candidates.
            queries: Query numbers ``[B]``.

        Returns:
            Scores ``[B, K]``, NaN for candidates that the run does not contain.

        Raises:
            UserError: If the run is missing or malformed, or contains none of the queries.
        """
        dataset = prepared.dataset
        run = read_run(
            path_of_dataset(self.path, dataset.name),
            query_ids=[dataset.query_ids[query] for query in queries.tolist()],
            node_ids=dataset.graph.node_ids,
            top_k=RUN_DEPTH,
            ignore_unknown_queries=True,
            drop_unknown=self.drop_unknown,
        )
        rows, num_nodes = torch.arange(len(queries)), dataset.graph.num_nodes
        keys, is_listed = pair_keys(rows, run.nodes, num_nodes=num_nodes), run.nodes >= 0
        candidates = pair_keys(rows, prepared.ranking.nodes[queries], num_nodes=num_nodes)
        return look_up(keys[is_listed], run.scores[is_listed], candidates, missing=torch.nan)


@dataclass(frozen=True, kw_only=True)
class SoftLabelTeacher(Teacher):
    """Teacher that reads soft labels from a column of the files of judgements.

    The files have the header ``query-id corpus-id score <column>``, separated by tabs. A blank score means that the
    passage was not judged, and a blank label that it has no soft label.

    Attributes:
        path: File of judgements, a data set folder, or a mapping from the name of a data set to either of these.
        column: Name of the column.
        drop_unknown: Whether to ignore unknown documents with a warning. By default, they are an error.
        unscored: Score of the candidates without a soft label (:class:`Teacher`). Ignored by default.
        allow_missing: Whether queries without scores are trained on too (:class:`Teacher`).
    """

    path: Paths
    column: str = "teacher"
    drop_unknown: bool = False
    unscored: str = "ignore"

    @property
    def name(self) -> str:
        """Name of the column and path of the file."""
        return f"{self.column} in {_names(self.path)}"

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the files and of the name of the column."""
        files = [file for path in _all_paths(self.path) for file in self._files(path)]
        return hashlib.sha256(f"{hash_files(files)} {self.column}".encode()).hexdigest()

    def score(self, prepared: PreparedDataset, queries: Tensor) -> Tensor:
        """Return the soft labels.

        Args:
            prepared: Data set with candidates.
            queries: Query numbers ``[B]``.

        Returns:
            Soft labels ``[B, K]``, NaN for candidates without one.

        Raises:
            UserError: If no file has the column, or a row is invalid.
        """
        dataset = prepared.dataset
        query_number = {dataset.query_ids[query]: query for query in queries.tolist()}
        node_number = {node_id: number for number, node_id in enumerate(dataset.graph.node_ids)}
        rows = [
            row
            for file in self._files(path_of_dataset(self.path, dataset.name))
            for row in read_soft_labels(
                file, query_number, node_number, column=self.column, drop_unknown=self.drop_unknown
            )
        ]
        num_nodes = dataset.graph.num_nodes
        keys = torch.tensor([row.query * num_nodes + row.node for row in rows], dtype=torch.int64)
        labels = torch.tensor([row.label for row in rows], dtype=torch.float32)
        candidates = pair_keys(queries, prepared.ranking.nodes[queries], num_nodes=num_nodes)
        return look_up(keys, labels, candidates, missing=torch.nan)

    def _files(self, path: Path) -> list[Path]:
        """Return the file itself, or the files of a data set folder that have the column."""
        if not path.is_dir():
            return [path]
        files = [file for file in qrels_files(path).values() if self.column in soft_label_columns(file)]
        if not files:
            raise UserError(f"{path}: expected a file of judgements with the column {self.column!r}, got none")
        return files


def path_of_dataset(path: Paths, name: str) -> Path:
    """Return the file of a data set.

    Args:
        path: One path for all data sets, or paths by the name of the data set.
        name: Name of the data set.

    Returns:
        Path of the data set.

    Raises:
        UserError: If the mapping does not contain the data set.

    Example:
        >>> path_of_dataset({"rivers": "rivers.trec"}, "rivers").name
        'rivers.trec'
    """
    if not isinstance(path, Mapping):
        return Path(path)
    if name not in path:
        raise UserError(f"`path` of the teacher must contain the data set {name!r}, got {sorted(path)}")
    return Path(path[name])


def _all_paths(path: Paths) -> list[Path]:
    return [Path(each) for each in path.values()] if isinstance(path, Mapping) else [Path(path)]


def _names(path: Paths) -> str:
    return ", ".join(str(each) for each in _all_paths(path))
