"""The answer for one query."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from torch import Tensor


@dataclass(frozen=True, eq=False)
class RerankedList(Sequence[tuple[Any, float]]):
    """Passages in their new order: a sequence of ``(id, score)``, best first, ties by place.

    Attributes:
        ids: The caller's own ids, or places where none were given.
        indices: ``[k]`` int64, each passage's place among those that were given, from 0.
        scores: ``[k]`` float32; higher is more relevant, comparable within one list only.
        probabilities: ``[k]`` float32 in [0, 1], how likely each passage is relevant by the model's calibration, also
            comparable between lists; None where the model was not calibrated.

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

    @property
    def relevance(self) -> Tensor:
        """``[k]`` float32: the probabilities, of a model without calibration the scores; what is given on."""
        return self.scores if self.probabilities is None else self.probabilities

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[tuple[Any, float]]:
        return zip(self.ids, self.scores.tolist(), strict=True)

    @overload
    def __getitem__(self, place: int) -> tuple[Any, float]: ...
    @overload
    def __getitem__(self, place: slice) -> "RerankedList": ...
    def __getitem__(self, place: int | slice) -> "tuple[Any, float] | RerankedList":
        if isinstance(place, slice):
            chosen = list(range(len(self)))[place]
            probabilities = None if self.probabilities is None else self.probabilities[chosen]
            return RerankedList(self.ids[place], self.indices[chosen], self.scores[chosen], probabilities)
        return self.ids[place], float(self.scores[place])
