"""Rankings of queries with the judgements on which probabilities are fitted and measured."""

from dataclasses import dataclass

from torch import Tensor

from graphrerank.calibration.logistic import Calibration


@dataclass(frozen=True, eq=False)
class LabelledLists:
    """Rankings of queries with their judgements.

    Attributes:
        scores: ``[Q, K]`` float32, best first, with padding ``-inf``.
        relevant: ``[Q, K]`` bool, True for relevant passages.
        num_relevant: ``[Q]`` int64, number of relevant passages of each query, including passages that are not ranked.
    """

    scores: Tensor
    relevant: Tensor
    num_relevant: Tensor

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Scores of all ranked passages, ``[n]`` float32, and their labels, ``[n]`` float64, 1 for relevant, else 0."""
        ranked = self.scores.isfinite()
        return self.scores[ranked], self.relevant[ranked].double()

    @property
    def complete(self) -> Tensor:
        """``[Q, K]`` bool: entry ``k - 1`` is True if the top ``k`` passages include every relevant passage."""
        return self.relevant.cumsum(1) == self.num_relevant.unsqueeze(1)

    def select(self, rows: slice | Tensor) -> "LabelledLists":
        """Return the lists of a subset of the queries.

        Args:
            rows: Slice, mask ``[Q]`` or row indices of the queries.

        Returns:
            Lists of the selected queries.
        """
        return LabelledLists(self.scores[rows], self.relevant[rows], self.num_relevant[rows])

    def probabilities(self, calibration: Calibration) -> Tensor:
        """Convert the scores to probabilities of relevance.

        Args:
            calibration: Map from scores to probabilities.

        Returns:
            ``[Q, K]`` float32, 0 for padding.
        """
        ranked = self.scores.isfinite()
        return calibration.probabilities(self.scores.masked_fill(~ranked, 0)).masked_fill(~ranked, 0)
