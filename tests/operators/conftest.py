from collections.abc import Callable

import pytest
import torch

from graphrerank.core import CandidateGraphs
from tests.operators.corpora import random_edges

MakeGraphs = Callable[..., CandidateGraphs]


@pytest.fixture
def random_graphs() -> MakeGraphs:
    """Make a float64 batch of directed, weighted graphs with isolated nodes and scores in [0, 1]."""

    def make(seed: int, *, sizes: tuple[int, ...] = (8, 1, 12), edges_per_node: float = 1.5) -> CandidateGraphs:
        generator = torch.Generator().manual_seed(seed)
        ptr = torch.tensor([0, *sizes]).cumsum(0)
        parts = [
            torch.unique(random_edges(size, int(edges_per_node * size), generator), dim=0) + start
            for size, start in zip(sizes, ptr.tolist(), strict=False)
        ]
        edge_index = torch.cat(parts).T
        x = torch.rand(int(ptr[-1]), 1, generator=generator, dtype=torch.float64)
        weight = torch.rand(edge_index.shape[1], generator=generator, dtype=torch.float64) + 0.1
        return CandidateGraphs(x, edge_index, weight, ptr)

    return make
