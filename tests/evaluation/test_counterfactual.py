from dataclasses import replace

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.counterfactual import OtherEdges, other_graphs
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.graphs import CandidateGraphs, CorpusGraph, ModelInputs, candidate_edges
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.graphs.model_inputs import SCORES
from graphrerank.operators.gcs import GCS

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
    graph = prepared.dataset.graph.with_passages(texts=texts)
    dataset = replace(prepared.dataset, graph=graph, query_texts=["alpha beta", "delta river", "gamma"])
    with_match = replace(prepared, dataset=dataset).with_features(("base_score", *MATCH_FEATURES))
    column = with_match.feature_names.index("neighbourhood_coverage")
    system = System("covered", lambda graphs: graphs.x[:, column])
    own = System("own", lambda graphs: graphs.x[:, with_match.feature_names.index("query_coverage")])
    removed = rerank(with_match, QUERIES, OtherEdges(with_match).systems(system)["removed"])
    assert torch.equal(removed.scores, rerank(with_match, QUERIES, own).scores)
    assert not torch.equal(removed.scores, rerank(with_match, QUERIES, system).scores)


def test_each_type_is_shuffled_and_its_words_follow(prepared: PreparedDataset) -> None:
    edges = torch.combinations(torch.arange(8))[::2]
    types = torch.arange(len(edges)) % 2 * 3
    texts = [f"alpha{i} beta{i}" for i in range(8)]
    graph = CorpusGraph.from_edges(list("abcdefgh"), texts, edges, edge_type=types)
    nodes, scores = torch.arange(8).expand(3, 8), torch.linspace(1, 0, 8).expand(3, 8)
    ranking = replace(prepared.ranking, nodes=nodes, scores=scores, features=scores.unsqueeze(-1))
    dataset = replace(prepared.dataset, graph=graph, query_texts=["alpha1 alpha5", "beta2 beta7", "alpha0"])
    with_match = replace(prepared, dataset=dataset, ranking=ranking).with_features(("base_score", *MATCH_FEATURES))
    seen: list[CandidateGraphs] = []

    def spy(graphs: CandidateGraphs) -> torch.Tensor:
        seen.append(graphs)
        return graphs.x[:, 0]

    system = System("spy", spy, inputs=SCORES.with_edge_types())
    others = OtherEdges(with_match).systems(system)
    for changed in (system, others["shuffled"], others["removed"]):
        rerank(with_match, QUERIES, changed)
    before, after, removed = seen
    for number in (0, 3):
        degrees = [torch.bincount(g.edge_index[1][g.edge_type == number], minlength=24) for g in (before, after)]
        assert torch.equal(*degrees)
    names = list(with_match.feature_names)
    match, ptr = TextMatch(texts), torch.arange(0, 25, 8)
    places = nodes.flatten()
    found = match.score(dataset.query_texts, places, after.edge_index, ptr)
    assert torch.equal(after.x[:, 1:], found)
    assert not torch.equal(after.x, before.x)
    assert removed.edge_type is not None
    assert not removed.edge_type.numel()
    alone = removed.x[:, names.index("query_coverage")]
    assert torch.equal(removed.x[:, names.index("neighbourhood_coverage")], alone)
    merged = System("merged", spy)
    rerank(with_match, QUERIES, OtherEdges(with_match).systems(merged)["shuffled"])
    assert seen[-1].edge_type is None


def test_what_reads_no_edges_is_not_tried(prepared: PreparedDataset) -> None:
    assert OtherEdges(prepared).systems(System("retriever", base_ranking, reads_graph=False)) == {}


def typed(prepared: PreparedDataset) -> PreparedDataset:
    """The same data over six passages, of which the first two are joined by two types, and others by one."""
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2], [3, 4]]), torch.tensor([0, 1, 0, 1])
    weight = torch.tensor([1.0, 3.0, 1.0, 1.0])
    graph = CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges, weight, edge_type=types)
    scores = torch.linspace(1, 0, 6).expand(3, 6)
    ranking = replace(
        prepared.ranking, nodes=torch.arange(6).expand(3, 6), scores=scores, features=scores.unsqueeze(-1)
    )
    return replace(prepared, dataset=replace(prepared.dataset, graph=graph), ranking=ranking)


@pytest.mark.parametrize("inputs", [SCORES, SCORES.with_edge_types()], ids=["merged", "typed"])
def test_each_type_is_left_out_in_turn(prepared: PreparedDataset, inputs: ModelInputs) -> None:
    prepared = typed(prepared)
    seen: list[CandidateGraphs] = []

    def spy(graphs: CandidateGraphs) -> torch.Tensor:
        seen.append(graphs)
        return graphs.x[:, 0]

    others = OtherEdges(prepared, ["each_type"]).systems(System("spy", spy, inputs=inputs))
    assert list(others) == ["without reference", "without entity"]
    for number, system in enumerate(others.values()):
        rerank(prepared, QUERIES, system)
        corpus = prepared.dataset.graph.with_types([other for other in range(len(EDGE_TYPES)) if other != number])
        keep = inputs.reads_edge_types
        edge_index, weight, _, edge_type = candidate_edges(corpus, prepared.ranking.nodes, keep_types=keep)
        assert torch.equal(seen[-1].edge_index, edge_index)
        assert torch.equal(seen[-1].edge_attr, weight)
        assert edge_type is None or torch.equal(seen[-1].edge_type, edge_type)


def test_one_type_alone_is_not_left_out(prepared: PreparedDataset) -> None:
    gcs = System("gcs", GCS(restart_prob=0.3).score)
    assert list(OtherEdges(prepared).systems(gcs)) == ["shuffled", "removed"]


def test_graphs_with_other_edges(prepared: PreparedDataset) -> None:
    graph = typed(prepared).dataset.graph
    others = dict(other_graphs(graph, ["removed", "each_type"]))
    assert list(others) == ["removed", "without reference", "without entity"]
    assert others["removed"].num_edges == 0
    assert others["without reference"].edge_types() == [1]
    assert torch.equal(others["without entity"].typed_edges()[0], torch.tensor([[0, 1], [1, 0], [1, 2], [2, 1]]))
