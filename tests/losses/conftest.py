from collections.abc import Callable

import pytest
import torch
from torch import Tensor

Batch = tuple[Tensor, Tensor, Tensor]


@pytest.fixture
def ragged_batch() -> Callable[[int], Batch]:
    """Make a float64 batch with distinct scores, lists of 1 to 9 candidates and gains of 0 to 2; row 0 has no gain."""

    def make(seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        num_queries, width = 6, 9
        scores = 2 * torch.randn(num_queries, width, generator=generator, dtype=torch.float64)
        relevance = (torch.rand(num_queries, width, generator=generator) * 4 - 2).ceil().clamp(min=0).double()
        relevance[0] = 0
        lengths = torch.randint(1, width + 1, (num_queries, 1), generator=generator)
        lengths[1] = width
        order = torch.rand(num_queries, width, generator=generator).argsort(dim=1)
        return scores, relevance, order < lengths  # padding lies anywhere, not only at the end

    return make
