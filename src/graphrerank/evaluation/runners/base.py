"""Abstract base class of runners, and the task that they are called with."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.systems import RankedSystem

BASELINE_ROWS = ""  # label of the rows of the baselines, which do not belong to a labelled system


@dataclass(frozen=True, eq=False)
class RankingTask:
    """Queries of one data set that all systems rank.

    Attributes:
        dataset: Data set of the queries.
        split: Split whose judgements are used.
        queries: Indices of the queries, ``[Q]`` int64, ascending.
        prepared: The same data set with encoded texts and candidates. None if no system needs them.
        is_filtered: Whether a metadata filter removed passages. If so, run files may contain unknown passages.
    """

    dataset: Dataset
    split: str
    queries: Tensor
    prepared: PreparedDataset | None = None
    is_filtered: bool = False

    @property
    def required_preparation(self) -> PreparedDataset:
        """Prepared data set, for runners that declare ``needs_preparation``."""
        assert self.prepared is not None, "a runner requires candidates, but the data set was not prepared"
        return self.prepared


class SystemRunner(ABC):
    """Rank the queries of a data set with all systems of one kind.

    A subclass implements :meth:`run` and sets the class attributes that apply to its kind of system.

    Attributes:
        needs_preparation: Whether :meth:`run` uses ``task.prepared``. Texts are encoded and candidates are retrieved
            only if at least one runner needs them.
        reranks_candidates: Whether the systems rerank the candidates of ``task.prepared``. If so, the report shows the
            ceiling of the candidates, and the retriever is kept so that its latency can be measured.
    """

    needs_preparation: ClassVar[bool] = True
    reranks_candidates: ClassVar[bool] = False

    @abstractmethod
    def run(self, task: RankingTask) -> dict[str, list[RankedSystem]]:
        """Rank the queries of a task.

        Args:
            task: Data set and queries.

        Returns:
            Rows of the result tables by label of the system. The rows of baselines are under ``BASELINE_ROWS``.
        """
