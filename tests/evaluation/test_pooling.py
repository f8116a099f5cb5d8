"""Passages to judge: the top of several systems, in an order that does not reveal them."""

from functools import partial

import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.pooling import PooledSearch
from graphrerank.models.checkpoint import load_primary
from graphrerank.operators.bm25 import BM25Retriever

WORDS = ["river", "stone", "metal", "cloud", "forest", "engine", "violin", "planet"]


@pytest.fixture
def search() -> PooledSearch:
    texts = [f"{word}. A text about {word}." for word in WORDS]
    graph = CorpusGraph.from_edges([f"p{i}" for i in range(8)], texts, torch.tensor([[0, 1], [1, 2]]))
    dataset = Dataset("toy", graph, [], [], {})
    return PooledSearch(
        dataset,
        load_primary("base"),
        encoder=None,
        build_retriever=partial(BM25Retriever, top_k=6),
        device=torch.device("cpu"),
        depth=2,
    )


def test_the_first_passages_of_all_systems_are_pooled(search: PooledSearch) -> None:
    found = [passage.passage_id for passage in search("a river and a cloud")]
    assert {"p0", "p3"} <= set(found)
    assert len(found) == len(set(found)) <= 8
    assert found == [passage.passage_id for passage in search("a river and a cloud")]


def test_the_order_depends_on_the_question_alone(search: PooledSearch) -> None:
    orders = {tuple(p.passage_id for p in search(f"river cloud {'stone ' * count}".strip())) for count in range(4)}
    assert len(orders) > 1
    assert any(order[0] != "p0" for order in orders)  # not the order of the retriever


def test_passages_are_looked_up_by_id(search: PooledSearch) -> None:
    assert [passage.text for passage in search.passages(["p2", "gone"])] == ["metal. A text about metal."]
