"""A corpus that a service searches and the checkpoint ``base`` reranks."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.checkpoint_scorer import CheckpointScorer
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from tests.support.encoders import HashEncoder


def searchable(
    ids: Sequence[str],
    texts: Sequence[str],
    edges: Mapping[tuple[int, int], int],
    *,
    budget: int,
    other: str,
    dim: int = 256,
    device: Any = "cpu",
) -> SearchableCorpus:
    """Index texts with edges of types; ``other`` is the name of the vector search to compare with."""
    encoder = HashEncoder(dim=dim, by_word=True)
    pairs, types = torch.tensor(list(edges)), torch.tensor(list(edges.values()))
    graph = CorpusGraph.from_edges(list(ids), list(texts), pairs, edge_type=types)
    graph = graph.with_embedding(encoder.encode(texts)).to(device)
    search: Any = partial(VectorSearch, retriever=HybridRetriever)
    rerank: Any = partial(GraphRerank, scorer=partial(CheckpointScorer, checkpoint="base", device=device))
    pipeline = Pipeline(graph, steps=[search, rerank], budget=budget)
    compared = Pipeline(graph, steps=[search], budget=budget + 1)
    return SearchableCorpus(graph, pipeline, MemoryVectorCache(encoder), {other: compared})
