"""Topics of a corpus, as directions in the space of its vectors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Topics:
    """Topics as directions among the vectors of a corpus's entities.

    Vectors of one encoder share a common component that distinguishes no topics; their mean is subtracted before they
    are compared.
    """

    names: Sequence[str]  # `T` names
    terms: Sequence[Sequence[str]]  # words of each topic, the most distinctive first
    vectors: Tensor  # `[T, d]` float32 unit vectors, of centred vectors
    centre: Tensor  # `[d]` float32, the mean that is subtracted from whatever is compared with a topic
    entity_threshold: float = 1.0  # minimum similarity of a sentence whose entities and relations belong to a topic
    threshold: float = 1.0  # minimum similarity of a question that is routed to a topic

    def __len__(self) -> int:
        return len(self.names)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Compare vectors ``[n, d]`` of the corpus's encoder with each topic: ``[n, T]`` cosines.

        Example:
            >>> centre, east = torch.zeros(2), torch.tensor([[1.0, 0.0]])
            >>> Topics(["east"], [["east"]], east, centre, 0.5, 0.5).similarity(torch.tensor([[3.0, 4.0]]))
            tensor([[0.6000]])
        """
        if not len(self):
            return vectors.new_zeros(len(vectors), 0)
        return torch.nn.functional.normalize(vectors - self.centre, dim=1) @ self.vectors.T
