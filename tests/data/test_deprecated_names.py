"""Deprecated names of methods and properties of data sets, judgements and errors."""

import pytest
import torch

from graphrerank.corpus import CorpusGraph
from graphrerank.corpus_store.growth import EdgeError, NewEdge
from graphrerank.data.dataset import Dataset
from graphrerank.data.derived_edges import EdgeRecipe, EdgeRule
from graphrerank.data.qrels import Qrels

ROWS = [(0, 7, 1.0), (1, 3, 2.0)]


def test_judgements() -> None:
    with pytest.warns(DeprecationWarning, match=r"Qrels\.of is now Qrels\.from_rows"):
        qrels = Qrels.of(ROWS)
    assert qrels.node.tolist() == [7, 3]
    with pytest.warns(DeprecationWarning, match=r"Qrels\.of_queries is now Qrels\.select_queries"):
        assert qrels.of_queries(torch.tensor([1])).node.tolist() == [3]
    mask = torch.arange(8) != 3
    with pytest.warns(DeprecationWarning, match=r"Qrels\.of_nodes is now Qrels\.select_nodes"):
        assert qrels.of_nodes(mask).node.tolist() == [6]


def test_edge_recipe() -> None:
    graph = CorpusGraph.from_edges(["a", "b"], ["A", "B"], torch.zeros(0, 2, dtype=torch.int64))
    recipe = EdgeRecipe(None, EdgeRule(mention_type=None), None)
    dataset = Dataset("d", graph, [], [], {}, edge_recipe=recipe)
    with pytest.warns(DeprecationWarning, match=r"Dataset\.found is now Dataset\.edge_recipe"):
        assert dataset.found is recipe


def test_position_of_an_invalid_edge() -> None:
    error = EdgeError(NewEdge("a", "b"), 3, "neither passage is new")
    with pytest.warns(DeprecationWarning, match=r"EdgeError\.place is now EdgeError\.position"):
        assert error.place == 3
