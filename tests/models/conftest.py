from collections.abc import Callable

import pytest
import torch

from graphrerank.core import CandidateGraphs

MakeBatch = Callable[..., CandidateGraphs]
EMBEDDING_DIM = 8


@pytest.fixture
def random_batch() -> MakeBatch:
    """Make a batch of candidate graphs with three distinct scores a node, vectors, and weighted edges both ways."""

    def make(seed: int = 0, *, sizes: tuple[int, ...] = (9, 14), edges_per_node: float = 1.5) -> CandidateGraphs:
        generator = torch.Generator().manual_seed(seed)
        parts = []
        start = 0
        for size in sizes:
            edges = torch.randint(0, max(size, 1), (2, int(edges_per_node * size)), generator=generator)
            edges = edges[:, edges[0] < edges[1]]
            parts.append(torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1) + start)
            start += size
        edge_index = torch.cat(parts, dim=1)
        return CandidateGraphs(
            x=torch.rand(start, 3, generator=generator),
            edge_index=edge_index,
            edge_attr=torch.rand(edge_index.shape[1], generator=generator) + 0.1,
            ptr=torch.tensor([0, *sizes]).cumsum(0),
            inputs={
                "query_vectors": torch.randn(len(sizes), EMBEDDING_DIM, generator=generator),
                "node_vectors": torch.randn(start, EMBEDDING_DIM, generator=generator),
            },
        )

    return make
