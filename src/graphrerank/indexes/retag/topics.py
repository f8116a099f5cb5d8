"""Topics of a corpus: what they are called, and what is near them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Topics:
    """Topics as directions among the vectors of a corpus's entities.

    Vectors of one encoder have much in common that tells no topic from another; likeness is taken after their mean is
    subtracted.

    Attributes:
        names: ``T`` names.
        terms: Of each topic its words, the most telling first.
        vectors: ``[T, d]`` float32 unit vectors, of centred vectors.
        centre: ``[d]`` float32, the mean that is subtracted from whatever is compared with a topic.
        entity_threshold: Least likeness of a sentence whose entities and relations belong to a topic.
        threshold: Least likeness of a question that is asked in a topic.
    """

    names: Sequence[str]
    terms: Sequence[Sequence[str]]
    vectors: Tensor
    centre: Tensor
    entity_threshold: float
    threshold: float

    def __len__(self) -> int:
        return len(self.names)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Compare vectors of texts with each topic.

        Args:
            vectors: ``[n, d]``, of the encoder that encoded the entities.

        Returns:
            ``[n, T]`` cosines.

        Example:
            >>> centre, east = torch.zeros(2), torch.tensor([[1.0, 0.0]])
            >>> Topics(["east"], [["east"]], east, centre, 0.5, 0.5).similarity(torch.tensor([[3.0, 4.0]]))
            tensor([[0.6000]])
        """
        if not len(self):
            return vectors.new_zeros(len(vectors), 0)
        return torch.nn.functional.normalize(vectors - self.centre, dim=1) @ self.vectors.T
