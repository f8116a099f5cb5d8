"""Random corpora and queries."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from tests.support.encoders import HashEncoder

MakeCorpus = Callable[..., CorpusGraph]
MakeQueries = Callable[..., Queries]


@pytest.fixture
def make_corpus() -> MakeCorpus:
    """Make a random corpus; the last ``isolated`` nodes have no edge, the last ``repeated`` are like those before."""

    def make(
        num_nodes: int = 60, num_edges: int = 90, *, seed: int = 0, isolated: int = 5, repeated: int = 0
    ) -> CorpusGraph:
        generator = torch.Generator().manual_seed(seed)
        edges = torch.randint(0, max(num_nodes - isolated, 1), (num_edges, 2), generator=generator)
        edges = edges[edges[:, 0] != edges[:, 1]]
        vectors = torch.nn.functional.normalize(torch.randn(num_nodes, 6, generator=generator), dim=1)
        texts = [f"passage {i}" for i in range(num_nodes)]
        for node in range(num_nodes - repeated, num_nodes):
            texts[node], vectors[node] = texts[node - repeated], vectors[node - repeated]
        return CorpusGraph.from_edges([f"n{i}" for i in range(num_nodes)], texts, edges).with_embedding(vectors)

    return make


@pytest.fixture
def make_queries() -> MakeQueries:
    """Make random queries, the last of them empty."""

    def make(num_queries: int = 7, *, seed: int = 1) -> Queries:
        generator = torch.Generator().manual_seed(seed)
        vectors = torch.nn.functional.normalize(torch.randn(num_queries, 6, generator=generator), dim=1)
        texts = [f"query {i}" for i in range(num_queries - 1)] + [""] * min(num_queries, 1)
        return Queries([f"q{i}" for i in range(num_queries)], texts, vectors)

    return make


def after_vector_search(
    step: Callable[..., Any],
    passages: Sequence[str],
    encoder: HashEncoder,
    *,
    budget: int,
    device: str = "cpu",
    **settings: Any,
) -> Pipeline:
    """Build a pipeline of a vector search and a step, over passages without edges."""
    ids = [f"p{number}" for number in range(len(passages))]
    graph = CorpusGraph.from_edges(ids, passages, torch.zeros(0, 2, dtype=torch.int64))
    graph = graph.with_embedding(encoder.encode(passages) if passages else torch.zeros(0, 6)).to(device)
    return Pipeline(graph, steps=[VectorSearch, step], budget=budget, text_encoder=encoder, **settings)


def keeps_vector_search(system: Pipeline, asked: Queries, rows: Sequence[int] | None = None) -> bool:
    """Return whether a pipeline's ranking of some queries is that of its vector search; None: of all."""
    dense = Pipeline(system._resources.graph, steps=[VectorSearch], budget=system.budget).retrieve(asked).ranking
    found, at = system.retrieve(asked).ranking, slice(None) if rows is None else list(rows)
    return torch.equal(found.nodes[at], dense.nodes[at]) and torch.equal(found.scores[at], dense.scores[at])


def named_edges(graph: CorpusGraph) -> dict[tuple[str, str, str], float]:
    """Weights of edges by the ids of both ends and the name of the type."""
    ids, (pairs, weight, types) = graph.node_ids, graph.typed_edges()
    rows = zip(pairs.tolist(), types.tolist(), weight.tolist(), strict=True)
    return {(ids[i], ids[j], EDGE_TYPES[kind]): w for (i, j), kind, w in rows}
