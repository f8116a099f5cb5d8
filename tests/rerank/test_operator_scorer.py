"""Operators without training as the scorers of pipelines."""

from functools import partial

import pytest
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.ppr import PPR
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from graphrerank.rerank.operator_scorer import OperatorScorer


@pytest.fixture
def graph() -> CorpusGraph:
    texts = ["red apple", "green apple", "red pear", "a stem"]
    graph = CorpusGraph.from_edges(list("abcd"), texts, torch.tensor([[0, 3], [1, 3]]))
    return graph.with_embedding(torch.nn.functional.normalize(torch.eye(4) + 0.1, dim=1))


def test_against_the_operator_on_the_same_graph(graph: CorpusGraph) -> None:
    nodes = torch.tensor([[0, 1, 2, 3]])
    ranking = Ranking(nodes, torch.tensor([[4.0, 3.0, 2.0, 1.0]]), torch.tensor([[[4.0], [3.0], [2.0], [1.0]]]))
    operator = PPR(restart_prob=0.4)
    scorer = OperatorScorer(graph, operator=operator)
    graphs = scorer.candidate_graphs(Queries(["q"], ["apple"]), ranking, ["base_score"])
    assert graphs.edge_index.shape[1] == 4
    assert torch.equal(scorer.score(graphs), operator.score(graphs))


def test_a_pipeline_ranks_along_edges(graph: CorpusGraph) -> None:
    search = partial(VectorSearch, retriever=partial(BM25Retriever))
    rank = partial(GraphRerank, scorer=partial(OperatorScorer, operator=PPR(restart_prob=0.2)))
    found = Pipeline(graph, steps=[search, rank], budget=4).retrieve(Queries(["q"], ["apple"]))
    assert found.ranking.nodes[0, 0] == 3  # the stem, which both apples link to


def test_a_feature_that_the_retriever_lacks_is_named(graph: CorpusGraph) -> None:
    ranking = HybridRetriever(graph, top_k=2).retrieve(Queries(["q"], ["apple"], torch.eye(4)[:1]))
    scorer = OperatorScorer(graph, operator=PPR(), features=["base_score", "words"])
    with pytest.raises(ValueError, match=r"got none named \['words'\]"):
        scorer.candidate_graphs(Queries(["q"], ["apple"]), ranking, HybridRetriever.feature_names)
