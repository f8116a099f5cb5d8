"""Result of reranking the candidates of one query."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence

NUM_IN_REPR = 5  # number of passages that `repr` lists


@dataclass(frozen=True, eq=False, repr=False)
class RerankedList(Sequence[tuple[Any, float]]):
    """Ranking of one query's passages: a sequence of ``(id, score)`` pairs, best first.

    Passages with equal scores keep their input order.

    Identical scores carry no information about relevance. If all passages have the same score, as a single passage
    always does, the model scores the texts again in a list that also contains the query itself and an empty text.
    Every passage is then given the mean probability of the texts in that list, which underestimates relevance rather
    than overestimating it. Without texts, ``probabilities`` is None in this case. Blank passages have probability 0.

    Attributes:
        ids: Ids of the ``k`` returned passages, or their input indices if the input has no ids.
        indices: ``[k]`` int64, input index of each returned passage, counted from 0.
        scores: ``[k]`` float32, where higher is more relevant. Scores are comparable within one list only.
        probabilities: ``[k]`` probabilities of relevance, comparable between lists. None if the model is not
            calibrated or if the probabilities are unknown.
        candidates: ``[K]`` probabilities of all input passages, best first, including those that were not returned.
            None if ``probabilities`` is None.
        confidence: Model of the probability that a list is complete. None if the checkpoint has none.

    Example:
        >>> import torch
        >>> ranking = RerankedList(("b", "a"), torch.tensor([1, 0]), torch.tensor([2.0, 0.5]))
        >>> len(ranking), ranking[0], list(ranking)
        (2, ('b', 2.0), [('b', 2.0), ('a', 0.5)])
    """

    ids: tuple[Any, ...]
    indices: Tensor
    scores: Tensor
    probabilities: Tensor | None = None
    candidates: Tensor | None = None
    confidence: ListConfidence | None = None

    @property
    def perfect_recall(self) -> Tensor | None:
        """Probabilities ``[K]`` of perfect recall: entry ``k - 1`` is for the best ``k`` passages.

        It is the probability that the best ``k`` passages include every relevant passage of the corpus, even those
        that are not among the candidates. None if the checkpoint was not calibrated for perfect recall with
        ``graphrerank calibrate checkpoint=RUN``.
        """
        if self.candidates is None or self.confidence is None:
            return None
        return self.confidence.perfect_recall(self.candidates)

    @property
    def relevance(self) -> Tensor:
        """Probabilities ``[k]``, or scores if there are no probabilities. Integrations return this tensor."""
        return self.scores if self.probabilities is None else self.probabilities

    def __repr__(self) -> str:
        shown = ", ".join(f"{name!r}: {score:.4g}" for name, score in list(self)[:NUM_IN_REPR])
        return (
            f"RerankedList({len(self)} passages, best first: {{{shown}{', ...' if len(self) > NUM_IN_REPR else ''}}})"
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return zip(self.ids, self.scores.tolist(), strict=True)

    @overload
    def __getitem__(self, index: int) -> tuple[Any, float]: ...
    @overload
    def __getitem__(self, index: slice) -> "RerankedList": ...
    def __getitem__(self, index: int | slice) -> "tuple[Any, float] | RerankedList":
        if isinstance(index, slice):
            chosen = list(range(len(self)))[index]
            return replace(
                self,
                ids=self.ids[index],
                indices=self.indices[chosen],
                scores=self.scores[chosen],
                probabilities=None if self.probabilities is None else self.probabilities[chosen],
            )
        return self.ids[index], float(self.scores[index])
