"""Runner of TREC run files."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import read_run
from graphrerank.evaluation.plan import DATASET, SystemSpec
from graphrerank.evaluation.runners.base import RankingTask, SystemRunner
from graphrerank.evaluation.systems import RankedSystem
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

RUN_DEPTH = 1_000  # maximum number of passages per query that are read from a run file


class RunFileRunner(SystemRunner):
    """Read the rankings of run files.

    Args:
        specs: Specifications of the run files. ``{dataset}`` in a path is replaced by the name of the data set.
    """

    needs_preparation: ClassVar[bool] = False

    def __init__(self, specs: Sequence[SystemSpec]) -> None:
        self.specs = list(specs)

    def run(self, task: RankingTask) -> dict[str, list[RankedSystem]]:
        """Read the run files of a task's data set.

        Args:
            task: Data set and queries.

        Returns:
            One row per run file, by label.

        Raises:
            UserError: If a file is missing or malformed, or if it contains no passages for the queries.
        """
        return {spec.label: [self._row(spec, task)] for spec in self.specs}

    def _row(self, spec: SystemSpec, task: RankingTask) -> RankedSystem:
        path = Path(str(spec.argument).replace(DATASET, task.dataset.name))
        ranking = read_run_file(path, task.dataset, task.split, task.queries, drop_unknown=task.is_filtered)
        return RankedSystem(spec.label, "run", spec.source, ranking, fingerprint=hash_files([path]))


def read_run_file(path: Path, dataset: Dataset, split: str, queries: Tensor, *, drop_unknown: bool = False) -> Ranking:
    """Read the rankings of queries from a TREC run file.

    Args:
        path: Path of the run file.
        dataset: Data set with the queries and the passages of the file.
        split: Split of the queries, for error messages.
        queries: Indices of the queries, ``[Q]`` int64.
        drop_unknown: Whether to ignore passages and queries that the data set does not have. If False, they are
            errors.

    Returns:
        Ranking ``[Q, depth]``, where depth is at most ``RUN_DEPTH``. Rows of queries that the file does not contain are
        padding.

    Raises:
        UserError: If the file is missing or malformed, or if it contains no passages for the queries.
    """
    query_ids, node_ids = dataset.query_ids, dataset.graph.node_ids
    run = read_run(path, query_ids=query_ids, node_ids=node_ids, top_k=RUN_DEPTH, drop_unknown=drop_unknown)
    ranking = Ranking(run.nodes[queries], run.scores[queries])
    if not bool((ranking.nodes >= 0).any()):
        raise UserError(
            f"{path} must rank passages for at least one of the {len(queries)} judged queries of split {split!r} of "
            f"{dataset.name!r}, got none"
        )
    return ranking
