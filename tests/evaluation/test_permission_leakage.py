from dataclasses import replace
from functools import partial

import torch

from graphrerank.core import Queries
from graphrerank.corpus import CorpusGraph
from graphrerank.corpus.edge_lists import GuardedEdges
from graphrerank.corpus.metadata import Metadata
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.permission_leakage import crossing_edges, measure_leakage
from graphrerank.operators.bm25 import BM25Retriever


def test_what_filtering_afterwards_tells_by_hand() -> None:
    texts = ["red red red pear", "red plum plum", "red apple", "fig"]
    graph = CorpusGraph.from_edges(list("abcd"), texts, torch.tensor([[0, 1], [1, 2], [2, 3]]))
    records = [{}, {"principals": ["hr"]}, {}, {}]
    graph = graph.with_passages(metadata=Metadata(records))
    one = torch.ones(1, dtype=torch.int64)
    guarded = GuardedEdges(torch.tensor([[0, 3]]), one.float(), one, one * 0, ['["hr"]'])
    assert crossing_edges(graph) == (3, 2)

    dataset = Dataset("drawn", replace(graph, guarded=guarded), ["q", "r"], ["red", "plum"], {})
    queries = Queries(["q", "r"], ["red", "plum"], None)
    search = partial(BM25Retriever, top_k=4)
    found = measure_leakage(dataset, queries, search(graph).retrieve(queries), search)
    assert (found.num_callers, found.num_questions) == (2, 2)
    assert found.shown == 0.5  # to the caller without principals, for both questions
    assert found.changed == 0.0  # the order of the others stays
    few = partial(BM25Retriever, top_k=1)  # the one candidate is hidden
    assert measure_leakage(dataset, queries, few(graph).retrieve(queries), few).changed == 0.25
    assert "after ranking, 25.0% reveal" in str(measure_leakage(dataset, queries, few(graph).retrieve(queries), few))
