"""The answer for one query."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence

NUM_IN_REPR = 5  # passages in the representation


@dataclass(frozen=True, eq=False, repr=False)
class RerankedList(Sequence[tuple[Any, float]]):
    """Passages in their new order: a sequence of ``(id, score)``, best first, ties by place.

    ``probabilities`` are None for a model without calibration. Where all passages have one score, as one passage alone
    has, scores tell nothing: each then has the mean probability that the model gives to these texts in a list with the
    query itself and an empty text, too low rather than too high; None without texts. A blank passage has 0.

    Example:
        >>> import torch
        >>> ranking = RerankedList(("b", "a"), torch.tensor([1, 0]), torch.tensor([2.0, 0.5]))
        >>> len(ranking), ranking[0], list(ranking)
        (2, ('b', 2.0), [('b', 2.0), ('a', 0.5)])
    """

    ids: tuple[Any, ...]  # the caller's ids, or indices if there were none
    indices: Tensor  # `[k]` int64, each passage's place among those that were given, from 0
    scores: Tensor  # `[k]` float32; higher is more relevant, comparable within one list only
    probabilities: Tensor | None = None  # `[k]` in [0, 1], of relevance, comparable between lists; None: unknown
    candidates: Tensor | None = None  # `[K]`, probabilities of all given passages, also of those that were left out
    confidence: ListConfidence | None = None  # of the model; None where it has none

    @property
    def perfect_recall(self) -> Tensor | None:
        """``[K]`` float32: at position ``k - 1`` the probability that the best ``k`` hold all that is relevant.

        Relevant passages that were not among those given count as missed. None where the model was not calibrated for
        it (``graphrerank calibrate checkpoint=RUN``).
        """
        if self.candidates is None or self.confidence is None:
            return None
        return self.confidence.perfect_recall(self.candidates)

    @property
    def relevance(self) -> Tensor:
        """``[k]`` float32: probabilities, or scores of a model without calibration: the output of adapters."""
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
