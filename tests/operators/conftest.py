from collections.abc import Callable

import pytest
import torch

from graphrerank.graphs import CandidateGraphs

MakeGraphs = Callable[..., CandidateGraphs]


@pytest.fixture
def random_graphs() -> MakeGraphs:
    """Make a float64 batch of directed, weighted graphs with isolated nodes and scores in [0, 1]."""

    def make(seed: int, *, sizes: tuple[int, ...] = (8, 1, 12), edges_per_node: float = 1.5) -> CandidateGraphs:
        generator = torch.Generator().manual_seed(seed)
        parts = []
        start = 0
        for size in sizes:
            edges = torch.randint(0, size, (2, int(edges_per_node * size)), generator=generator)
            edges = torch.unique(edges[:, edges[0] != edges[1]], dim=1)
            parts.append(edges + start)
            start += size
        edge_index = torch.cat(parts, dim=1)
        return CandidateGraphs(
            x=torch.rand(start, 1, generator=generator, dtype=torch.float64),
            edge_index=edge_index,
            edge_attr=torch.rand(edge_index.shape[1], generator=generator, dtype=torch.float64) + 0.1,
            ptr=torch.tensor([0, *sizes]).cumsum(0),
        )

    return make
