"""Small random corpora with words, edges and vectors, and queries to them, for tests of retrievers."""

import torch
import torch.nn.functional as F

from graphrerank.graphs import CorpusGraph, Queries, Ranking

WORDS = ["fox", "dog", "bird", "tree", "river", "stone"]


def corpus(num_nodes: int = 40, num_edges: int = 60, *, seed: int = 0) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, len(WORDS), (num_nodes, 4), generator=generator)
    edges = torch.randint(0, num_nodes, (num_edges, 2), generator=generator)
    texts = [" ".join(WORDS[i] for i in row) for row in words]
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(num_nodes)], texts, edges[edges[:, 0] != edges[:, 1]])
    return graph.with_embedding(F.normalize(torch.randn(num_nodes, 5, generator=generator), dim=1))


def queries(num_queries: int = 7, *, seed: int = 1) -> Queries:
    """Two words each; the last one's is in no text."""
    generator = torch.Generator().manual_seed(seed)
    texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(2)) for i in range(num_queries - 1)] + ["zebra"]
    vectors = F.normalize(torch.randn(num_queries, 5, generator=generator), dim=1)
    return Queries([f"q{i}" for i in range(num_queries)], texts, vectors)


def assert_equal(one: Ranking, other: Ranking) -> None:
    assert torch.equal(one.nodes, other.nodes)
    torch.testing.assert_close(one.scores, other.scores)
    torch.testing.assert_close(one.features, other.features)
