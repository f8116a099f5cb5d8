"""Score queries by the most similar questions of each path, without training."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.core import Encoder
from graphrerank.utils.checks import check_counts, check_positive
from graphrerank_papers.ea_graphrag.routing_questions import TRAINING, read_routing_questions


@dataclass(eq=False)
class PrototypeScorer:
    r"""Score how much queries need graph retrieval by the most similar questions of each path.

    .. math:: s(q) = \sigma\bigl((\bar c_{\mathrm{graph}}(q) - \bar c_{\mathrm{dense}}(q)) / t\bigr)

    :math:`\bar c` is the mean cosine similarity of the query and the ``num_nearest`` most similar training questions of
    a path, and :math:`t` is the ``temperature``. This is a baseline of EA-GraphRAG's router, not a part of the paper.

    Attributes:
        questions: File of questions, see :func:`read_routing_questions`.
        encoder: Text encoder of queries and questions.
        low: Maximum score of queries that take the dense path.
        high: Minimum score of queries that take the graph path.
        num_nearest: Number of questions of each path that a query is compared with.
        temperature: Temperature of the difference of the similarities. Must be positive.
    """

    questions: str | Path
    _: KW_ONLY
    encoder: Encoder
    low: float = 0.4
    high: float = 0.6
    num_nearest: int = 5
    temperature: float = 0.05

    def __post_init__(self) -> None:
        """Encode the training questions."""
        check_counts(num_nearest=self.num_nearest)
        check_positive(temperature=self.temperature)
        texts, self._labels = read_routing_questions(self.questions, TRAINING)
        self._prototypes = self.encoder.encode(texts)

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries.

        Args:
            texts: Texts of ``B`` queries.

        Returns:
            Scores s(q) ``[B]`` in [0, 1], on the CPU. The score of a query whose vector is zero is 0.5.
        """
        if not texts:
            return torch.zeros(0)
        cosines = self.encoder.encode(texts) @ self._prototypes.T
        near = []
        for label in (0, 1):
            of_path = cosines[:, self._labels == label]
            near.append(of_path.topk(min(self.num_nearest, of_path.shape[1]), dim=1).values.mean(1))
        return torch.sigmoid((near[1] - near[0]) / self.temperature)
