"""Data sets of drawn passages, with edges of several types and entities."""

import random
from collections.abc import Callable
from functools import partial

import pytest
import torch

from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.graphs import CorpusGraph, EntityIncidence, RetrieverFactory
from graphrerank.graphs.model_inputs import ModelInputs
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever

WORDS = [f"word{number}" for number in range(60)] + ["the", "of", "Rivers", "river", "\u03a3\u03bf\u03c6\u03af\u03b1"]
MakeDataset = Callable[..., Dataset]
RETRIEVERS: dict[str, RetrieverFactory] = {
    "bm25": partial(BM25Retriever, top_k=20),
    "bm25 with other settings": partial(BM25Retriever, top_k=20, k1=0.9, b=0.4),
    "dense": partial(DenseRetriever, top_k=20),
    "hybrid": partial(HybridRetriever, top_k=20),
    "hybrid of proposals": partial(HybridRetriever, top_k=20, proposals=40),
    "hybrid_expand": partial(HybridExpandRetriever, top_k=20, base_k=8, num_seeds=4, hops=2),
    "expand": partial(ExpandRetriever, base=partial(BM25Retriever), top_k=20, base_k=8, num_seeds=4),
}
INPUTS = ModelInputs(
    ("base_features", "query_vectors", "node_vectors", "edge_index", "edge_weight", "edge_type", "ptr")
)


@pytest.fixture
def make_dataset() -> MakeDataset:
    """Make a data set; some passages are empty, some hold a line break in their lead."""

    def make(num_nodes: int = 90, *, seed: int = 0, entities: bool = True, name: str = "drawn") -> Dataset:
        rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
        texts = [
            rng.choice([". ", "\n", " "]).join(" ".join(rng.choices(WORDS, k=rng.randint(1, 9))) for _ in range(3))
            for _ in range(num_nodes)
        ]
        texts[3] = texts[7] = ""
        pairs = torch.randint(0, num_nodes, (3 * num_nodes, 2), generator=generator)
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        weight = torch.rand(len(pairs), generator=generator) + 0.1
        types = torch.randint(0, 5, (len(pairs),), generator=generator)
        graph = CorpusGraph.from_edges([f"d{i}" for i in range(num_nodes)], texts, pairs, weight, edge_type=types)
        if entities:
            names = [rng.choices("abcdefghij", k=rng.randint(0, 3)) for _ in range(num_nodes)]
            graph = graph.with_entities(EntityIncidence.from_names(names, max_share=0.5))
        queries = [" ".join(rng.choices([*WORDS, "unseen"], k=rng.randint(0, 8))) for _ in range(12)]
        judged = torch.randint(0, num_nodes, (12,), generator=generator)
        qrels = {
            "train": Qrels(torch.arange(0, 6), judged[:6], torch.ones(6)),
            "test": Qrels(torch.arange(6, 12), judged[6:], torch.full((6,), 2.0)),
        }
        answers = {"q1": ["Metz"]}
        return Dataset(name, graph, [f"q{i}" for i in range(12)], queries, qrels, answers=answers)

    return make
