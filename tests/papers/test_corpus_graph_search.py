from functools import partial

import networkx
import torch

from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from graphrerank_papers.corpus_graph_search import NeighbourSearch, PathSearch
from graphrerank_papers.knowledge_graph_search import flow_paths
from tests.support.graphs import MakeCorpus, MakeQueries


def test_neighbours_against_networkx(make_corpus: MakeCorpus, make_queries: MakeQueries) -> None:
    corpus, queries = make_corpus(), make_queries()
    system = Pipeline(corpus, steps=[partial(VectorSearch, top_k=5), NeighbourSearch], budget=20)
    seeds = Pipeline(corpus, steps=[VectorSearch], budget=5).retrieve(queries).ranking.nodes.tolist()
    graph = networkx.Graph(corpus.typed_edges()[0].tolist())
    graph.add_nodes_from(range(corpus.num_nodes))
    for row, start in zip(system.retrieve(queries).ranking.nodes.tolist(), seeds, strict=True):
        edges = [(-graph.degree(s) - graph.degree(n), i, n) for i, s in enumerate(start) for n in graph[s]]
        near = list(dict.fromkeys(node for *_, node in sorted(edges) if node not in start))
        turns = [each[rank] for rank in range(20) for each in (start, near) if rank < len(each)]
        expected = turns[:20]
        assert [node for node in row if node >= 0] == expected
        assert len(expected) > 5


def test_paths_between_retrieved_nodes(make_corpus: MakeCorpus, make_queries: MakeQueries) -> None:
    corpus, queries = make_corpus(num_edges=120), make_queries()
    search = partial(PathSearch, num_paths=3, threshold=0.01)
    system = Pipeline(corpus, steps=[partial(VectorSearch, top_k=8), search], budget=30)
    seeds = Pipeline(corpus, steps=[VectorSearch], budget=8).retrieve(queries).ranking.nodes.tolist()
    neighbours = [sorted(corpus.neighbours(torch.tensor([node]))[1].unique().tolist()) for node in range(60)]
    beyond = 0
    for row, start in zip(system.retrieve(queries).ranking.nodes.tolist(), seeds, strict=True):
        found = [
            path for seed in start for path in flow_paths(neighbours, seed, threshold=0.01) if path[1][-1] in start
        ]
        best: dict[frozenset[int], tuple[int, ...]] = {}
        for _, path in sorted((-score, path) for score, path in found):
            best.setdefault(frozenset(path), path)
        inner = [node for path in [*best.values()][:3] for node in path]
        assert [node for node in row if node >= 0] == list(dict.fromkeys([*inner, *start]))
        beyond += len(set(inner) - set(start))
    assert beyond
