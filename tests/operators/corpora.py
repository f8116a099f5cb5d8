"""Small corpora with words, edges and vectors, random or given, and queries to them, for tests of retrievers."""

import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph

NO_EDGES = torch.zeros(0, 2, dtype=torch.int64)
WORDS = ["fox", "dog", "bird", "tree", "river", "stone"]


def corpus_of(texts: list[str], vectors: Tensor | None = None, edges: Tensor = NO_EDGES) -> CorpusGraph:
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(len(texts))], texts, edges)
    return graph if vectors is None else graph.with_embedding(vectors)


def queries_of(texts: list[str], vectors: Tensor | None = None) -> Queries:
    return Queries([f"q{i}" for i in range(len(texts))], texts, vectors)


def random_edges(num_nodes: int, num_edges: int, generator: torch.Generator) -> Tensor:
    """Draw ``[M, 2]`` pairs of different nodes."""
    edges = torch.randint(0, max(num_nodes, 1), (num_edges, 2), generator=generator)
    return edges[edges[:, 0] != edges[:, 1]]


def corpus(num_nodes: int = 40, num_edges: int = 60, *, seed: int = 0) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(0, len(WORDS), (num_nodes, 4), generator=generator)
    edges = random_edges(num_nodes, num_edges, generator)
    texts = [" ".join(WORDS[i] for i in row) for row in words]
    return corpus_of(texts, F.normalize(torch.randn(num_nodes, 5, generator=generator), dim=1), edges)


def queries(num_queries: int = 7, *, seed: int = 1) -> Queries:
    """Two words each; the last one's is in no text."""
    generator = torch.Generator().manual_seed(seed)
    texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(2)) for i in range(num_queries - 1)] + ["zebra"]
    vectors = F.normalize(torch.randn(num_queries, 5, generator=generator), dim=1)
    return queries_of(texts, vectors)


def assert_equal(one: Ranking, other: Ranking) -> None:
    assert torch.equal(one.nodes, other.nodes)
    torch.testing.assert_close(one.scores, other.scores)
    torch.testing.assert_close(one.features, other.features)
