from dataclasses import replace

import pytest
import torch

from graphrerank.data import PreparedDataset
from graphrerank.data.text_match import MATCH_FEATURES
from graphrerank.evaluation import System, base_ranking, rerank
from graphrerank.evaluation.counterfactual import OtherEdges
from graphrerank.graphs import CandidateGraphs, CorpusGraph
from graphrerank.operators import GCS

QUERIES = torch.arange(3)


def num_neighbours(graphs: CandidateGraphs) -> torch.Tensor:
    return torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes).float()


def test_removed_edges_are_not_seen(prepared: PreparedDataset) -> None:
    gcs, base = System("gcs", GCS(restart_prob=0.3).score), System("retriever", base_ranking)
    removed = rerank(prepared, QUERIES, OtherEdges(prepared).systems(gcs)["removed"])
    assert torch.equal(removed.scores, rerank(prepared, QUERIES, base).scores)
    assert not torch.equal(removed.scores, rerank(prepared, QUERIES, gcs).scores)


def test_shuffled_edges_keep_each_candidates_number(prepared: PreparedDataset) -> None:
    edges = torch.combinations(torch.arange(8))[::2]
    graph = CorpusGraph.from_edges(list("abcdefgh"), [""] * 8, edges)
    nodes = torch.arange(8).expand(3, 8)
    scores = torch.linspace(1, 0, 8).expand(3, 8)
    ranking = replace(prepared.ranking, nodes=nodes, scores=scores, features=scores.unsqueeze(-1))
    prepared = replace(prepared, dataset=replace(prepared.dataset, graph=graph), ranking=ranking)
    seen: list[CandidateGraphs] = []

    def spy(graphs: CandidateGraphs) -> torch.Tensor:
        seen.append(graphs)
        return num_neighbours(graphs)

    system = System("spy", spy)
    as_it_is = rerank(prepared, QUERIES, system)
    shuffled = rerank(prepared, QUERIES, OtherEdges(prepared).systems(system)["shuffled"])
    assert torch.equal(as_it_is.nodes, shuffled.nodes)  # the degrees are the same
    assert not torch.equal(seen[0].edge_index, seen[1].edge_index)
    again = rerank(prepared, QUERIES, OtherEdges(prepared).systems(system)["shuffled"])
    assert torch.equal(seen[1].edge_index, seen[2].edge_index)  # seeded
    assert torch.equal(again.nodes, shuffled.nodes)


def test_words_that_neighbours_cover_follow_the_edges(prepared: PreparedDataset) -> None:
    texts = ["alpha. one", "beta. two", "gamma. three", "delta. four", "river. five", "stone. six"]
    graph = replace(prepared.dataset.graph, texts=texts)
    dataset = replace(prepared.dataset, graph=graph, query_texts=["alpha beta", "delta river", "gamma"])
    with_match = replace(prepared, dataset=dataset).with_features(("base_score", *MATCH_FEATURES))
    column = with_match.feature_names.index("neighbourhood_coverage")
    system = System("covered", lambda graphs: graphs.x[:, column])
    own = System("own", lambda graphs: graphs.x[:, with_match.feature_names.index("query_coverage")])
    removed = rerank(with_match, QUERIES, OtherEdges(with_match).systems(system)["removed"])
    assert torch.equal(removed.scores, rerank(with_match, QUERIES, own).scores)
    assert not torch.equal(removed.scores, rerank(with_match, QUERIES, system).scores)


def test_unknown_edges_are_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match=r"`kinds` must be of \('shuffled', 'removed'\), got \['rewired'\]"):
        OtherEdges(prepared, ["removed", "rewired"])


def test_what_reads_no_edges_is_not_tried(prepared: PreparedDataset) -> None:
    assert OtherEdges(prepared).systems(System("retriever", base_ranking, reads_graph=False)) == {}
