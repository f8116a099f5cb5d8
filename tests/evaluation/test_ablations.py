from dataclasses import replace

import pytest
import torch

from graphrerank.core import CandidateGraphs, ModelInputs, Ranking
from graphrerank.core.model_inputs import SCORES
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.ablations import EdgeAblation
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.runners.checkpoint import run_reranker
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.operators.gcs import GCS

RETRIEVER = System("retriever", base_ranking, reads_graph=False)
QUERIES = torch.arange(3)


class Spy:
    """Scores as the retriever did, and keeps the graphs that it scored."""

    def __init__(self) -> None:
        self.seen: list[CandidateGraphs] = []

    def __call__(self, graphs: CandidateGraphs) -> torch.Tensor:
        self.seen.append(graphs)
        return graphs.x[:, 0]


def test_removed_edges_are_not_seen_and_what_reads_none_is_not_tried(prepared: PreparedDataset) -> None:
    gcs, edges = System("gcs", GCS(restart_prob=0.3).score), EdgeAblation(prepared)
    assert list(edges.systems(gcs)) == ["shuffled", "removed"]  # one type alone is not left out
    base = rerank(prepared, QUERIES, RETRIEVER).scores
    row = run_reranker(prepared, QUERIES, gcs, edge_ablation=EdgeAblation(prepared, ["removed"]))
    assert list(row.on_other_edges) == ["removed"]
    assert torch.equal(row.on_other_edges["removed"].scores, base)
    assert not torch.equal(row.ranking.scores, base)
    assert run_reranker(prepared, QUERIES, RETRIEVER, edge_ablation=edges).on_other_edges == {}


def all_of(prepared: PreparedDataset, graph: CorpusGraph, **more: list[str]) -> PreparedDataset:
    """Another corpus, whose passages are candidates of each query."""
    scores = torch.linspace(1, 0, graph.num_nodes).expand(3, -1)
    ranking = Ranking(torch.arange(graph.num_nodes).expand(3, -1), scores, scores.unsqueeze(-1))
    return replace(prepared, dataset=replace(prepared.dataset, graph=graph, **more), ranking=ranking)


def eight(prepared: PreparedDataset, **types: torch.Tensor) -> PreparedDataset:
    """Eight passages with half of all possible edges."""
    texts = [f"alpha{i} beta{i}" for i in range(8)]
    graph = CorpusGraph.from_edges(list("abcdefgh"), texts, torch.combinations(torch.arange(8))[::2], **types)
    return all_of(prepared, graph, query_texts=["alpha1 alpha5", "beta2 beta7", "alpha0"])


def test_shuffled_edges_keep_each_candidates_number(prepared: PreparedDataset) -> None:
    prepared, spy = eight(prepared), Spy()
    system = System("spy", spy)
    for changed in (system, *(EdgeAblation(prepared).systems(system)["shuffled"] for _ in range(2))):
        rerank(prepared, QUERIES, changed)
    before, after, again = (graphs.edge_index for graphs in spy.seen)
    assert torch.equal(*(torch.bincount(edges[1], minlength=24) for edges in (before, after)))
    assert not torch.equal(before, after)
    assert torch.equal(after, again)  # seeded


def test_each_type_is_shuffled_and_its_words_follow(prepared: PreparedDataset) -> None:
    with_match = eight(prepared, edge_type=torch.arange(14) % 2 * 3).with_features(("base_score", *MATCH_FEATURES))
    spy = Spy()
    system = System("spy", spy, inputs=SCORES.with_edge_types())
    others = EdgeAblation(with_match).systems(system)
    for changed in (system, others["shuffled"], others["removed"]):
        rerank(with_match, QUERIES, changed)
    before, after, removed = spy.seen
    for number in (0, 3):
        degrees = [torch.bincount(g.edge_index[1][g.edge_type == number], minlength=24) for g in (before, after)]
        assert torch.equal(*degrees)
    names, match = list(with_match.feature_names), TextMatch(with_match.dataset.graph.texts)
    places = with_match.ranking.nodes.flatten()
    found = match.score(with_match.dataset.query_texts, places, after.edge_index, torch.arange(0, 25, 8))
    assert torch.equal(after.x[:, 1:], found)
    assert not torch.equal(after.x, before.x)
    assert not removed.edge_type.numel()
    alone = removed.x[:, names.index("query_coverage")]
    assert torch.equal(removed.x[:, names.index("neighbourhood_coverage")], alone)
    rerank(with_match, QUERIES, EdgeAblation(with_match).systems(System("merged", spy))["shuffled"])
    assert spy.seen[-1].edge_type is None


def typed(prepared: PreparedDataset) -> PreparedDataset:
    """Six passages, of which the first two are joined by two types, and others by one."""
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2], [3, 4]]), torch.tensor([0, 1, 0, 1])
    weight = torch.tensor([1.0, 3.0, 1.0, 1.0])
    return all_of(prepared, CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges, weight, edge_type=types))


@pytest.mark.parametrize("inputs", [SCORES, SCORES.with_edge_types()], ids=["merged", "typed"])
def test_each_type_is_left_out_in_turn(prepared: PreparedDataset, inputs: ModelInputs) -> None:
    prepared, spy = typed(prepared), Spy()
    others = EdgeAblation(prepared, ["each_type"]).systems(System("spy", spy, inputs=inputs))
    assert list(others) == ["without reference", "without entity"]
    for number, system in enumerate(others.values()):
        rerank(prepared, QUERIES, system)
        corpus = prepared.dataset.graph.with_types([other for other in range(len(EDGE_TYPES)) if other != number])
        keep = inputs.reads_edge_types
        edge_index, weight, _, edge_type = candidate_edges(corpus, prepared.ranking.nodes, keep_types=keep)
        assert torch.equal(spy.seen[-1].edge_index, edge_index)
        assert torch.equal(spy.seen[-1].edge_attr, weight)
        assert edge_type is None or torch.equal(spy.seen[-1].edge_type, edge_type)
