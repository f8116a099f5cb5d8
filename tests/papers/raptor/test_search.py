from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.vector_search import VectorSearch
from graphrerank_papers.raptor.search import RAPTORSearch
from graphrerank_papers.raptor.summary_tree import SummaryTree, SummaryTreeBuilder, SummaryTreeSettings
from tests.papers.raptor.test_summary_tree import PASSAGES
from tests.support.encoders import HashEncoder

ENCODER = HashEncoder(dim=64, by_word=True)
SETTINGS = SummaryTreeSettings(num_dims=3)
QUERIES = ["fox and sea", "a queen of sand", "word7", "stone word3"]
Build = Callable[..., Pipeline]


@pytest.fixture
def pipeline(tmp_path: Path) -> Build:
    def make(**settings: Any) -> Pipeline:
        graph = CorpusGraph.from_edges(list(map(str, range(len(PASSAGES)))), PASSAGES, torch.zeros(0, 2).long())
        graph = graph.with_embedding(ENCODER.encode(PASSAGES))
        step = partial(RAPTORSearch, folder=tmp_path, settings=SETTINGS, **settings)
        return Pipeline(graph, steps=[VectorSearch, step], budget=20, text_encoder=ENCODER)

    return make


@pytest.fixture
def tree(tmp_path: Path) -> SummaryTree:
    return SummaryTreeBuilder(tmp_path, encoder=ENCODER).build(PASSAGES, ENCODER.encode(PASSAGES), SETTINGS)


def by_hand(tree: SummaryTree, query: str, *, search: str, branches: int) -> list[int]:
    """Section 3 for one query, as it is written."""
    vector = ENCODER.encode([query])[0]
    texts = [*PASSAGES, *tree.texts]
    score = [float(ENCODER.encode([text])[0] @ vector) for text in texts]
    best = lambda nodes: sorted(nodes, key=lambda node: (-round(score[node], 6), node))  # noqa: E731
    if search == "collapsed":
        listed: list[int] = []
        for node in best(range(len(texts))):
            leaves, open_nodes = set(), [node]
            while open_nodes:
                own = open_nodes.pop()
                if own < len(PASSAGES):
                    leaves.add(own)
                else:
                    open_nodes += tree.children[own - len(PASSAGES)]
            listed += best(leaves)
        return list(dict.fromkeys(listed))[:20]
    first = len(texts) - tree.layers[-1]
    layer = list(range(first, len(texts)))
    while layer[0] >= len(PASSAGES):
        layer = sorted({child for node in best(layer)[:branches] for child in tree.children[node - len(PASSAGES)]})
    return best(layer)[:20]


@pytest.mark.parametrize(("search", "branches"), [("collapsed", 10), ("tree", 1), ("tree", 2)])
def test_against_the_description_query_by_query(search: str, branches: int, pipeline: Build, tree: SummaryTree) -> None:
    found = pipeline(search=search, num_branches=branches).retrieve(ENCODER.queries(QUERIES)).ranking.nodes
    assert tree.layers[0] > 2
    differs = 0
    for row, query in enumerate(QUERIES):
        expected = by_hand(tree, query, search=search, branches=branches)
        assert [node for node in found[row].tolist() if node >= 0] == expected
        dense = torch.argsort(-(ENCODER.encode(PASSAGES) @ ENCODER.encode([query])[0]), stable=True)[:20].tolist()
        differs += expected != dense
    assert differs >= 2


def test_a_query_without_a_vector_keeps_its_ranking(pipeline: Build) -> None:
    system, asked = pipeline(), Queries(["q"], [""], torch.zeros(1, 64))
    dense = Pipeline(system._resources.graph, steps=[VectorSearch], budget=20).retrieve(asked).ranking
    assert torch.equal(system.retrieve(asked).ranking.nodes, dense.nodes)


def test_settings_out_of_range_are_refused(pipeline: Build) -> None:
    with pytest.raises(ValueError, match=r"`search` must be one of \['collapsed', 'tree'\], got 'flat'"):
        pipeline(search="flat")
    with pytest.raises(ValueError, match="`num_branches` must be a positive integer, got 0"):
        pipeline(num_branches=0)
