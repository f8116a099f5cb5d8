"""The abstract base of runners, and the task that they get."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.systems import RankedSystem

BASELINE_ROWS = ""  # label of the rows that belong to no system


@dataclass(frozen=True, eq=False)
class RankingTask:
    """Queries of one data set that all systems rank.

    Attributes:
        dataset: Data set of the queries.
        split: Split whose judgements are used.
        queries: Indices of the queries, ``[Q]`` int64, ascending.
        prepared: The same data set with encoded texts and candidates. None if no system needs them.
        is_filtered: Whether passages were left out by a metadata filter, so that run files may name unknown passages.
    """

    dataset: Dataset
    split: str
    queries: Tensor
    prepared: PreparedDataset | None = None
    is_filtered: bool = False

    @property
    def required_preparation(self) -> PreparedDataset:
        """The prepared data set, for runners that declare ``needs_preparation``."""
        assert self.prepared is not None, "a runner needs candidates, and the data set was not prepared"
        return self.prepared


class SystemRunner(ABC):
    """Ranks the queries of a data set with all systems of one kind.

    A subclass implements :meth:`run` and sets the class attributes that apply to its kind of system.

    Attributes:
        needs_preparation: Whether :meth:`run` reads ``task.prepared``. Data sets are encoded and searched for
            candidates only if a runner needs it.
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
            Rows of the result tables by label of the system. Rows that belong to no system are under
            ``BASELINE_ROWS``.
        """
