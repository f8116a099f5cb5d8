"""Data sets of drawn passages, with edges of several types and entities."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import RetrieverFactory
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.data.candidates import prepare
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.features.text_match import TEXT_MATCH_FEATURES
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import ExpandRetriever, HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.encoders import HashEncoder

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


def encoder() -> HashEncoder:
    return HashEncoder(dim=32, by_word=True)


def assert_same(found: Dataset, rebuilt: Dataset, cache: Path, *, exact: bool = True, grown: bool = True) -> None:
    """Compare rankings, features and candidate graphs of all queries; the numbers of passages may differ."""
    graph = found.graph
    removed = graph.passages.removed
    live = torch.arange(graph.num_nodes) if removed is None else (~removed).nonzero().flatten()
    assert [graph.node_ids[i] for i in live.tolist()] == list(rebuilt.graph.node_ids)
    number = torch.cat([torch.full((graph.num_nodes,), -1), torch.tensor([-1])])
    number[live] = torch.arange(len(live))

    def close(one: Any, other: Any, *, exact: bool = False) -> None:
        torch.testing.assert_close(one, other, **({"rtol": 0, "atol": 0} if exact else {"rtol": 1e-5, "atol": 1e-6}))

    for split, qrels in rebuilt.splits.items():
        assert torch.equal(number[found.split(split).node], qrels.node)
    close(graph.degree[live], rebuilt.graph.degree, exact=True)
    assert graph.num_edges == rebuilt.graph.num_edges
    for name, build in RETRIEVERS.items():
        here, there = (
            prepare(data, encoder=encoder(), build_retriever=build, cache=cache / str(place))
            for place, data in enumerate((found, rebuilt))
        )
        assert torch.equal(number[here.ranking.nodes], there.ranking.nodes), name
        close(here.ranking.scores, there.ranking.scores, exact=not grown or name.startswith("bm25"))
        close(here.ranking.features, there.ranking.features, exact=not grown or name.startswith("bm25"))
    names = ("base_score", *TEXT_MATCH_FEATURES)
    one, other = (
        data.with_features(names).graphs(torch.arange(12), split=None, inputs=INPUTS) for data in (here, there)
    )
    close(one.x[:, 1:], other.x[:, 1:], exact=exact)
    assert torch.equal(number[one.nodes], other.nodes)
    for field in ("edge_index", "edge_attr", "ptr", "edge_type"):
        close(getattr(one, field), getattr(other, field), exact=exact)
    close(one.inputs["node_vectors"], other.inputs["node_vectors"], exact=True)


@pytest.fixture(scope="session")
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
