import math
from dataclasses import replace
from functools import partial

import pytest
import torch

from graphrerank.core import CandidateGraphs, ModelInputs, Queries, Ranking
from graphrerank.core.model_inputs import PAIRS, SCORES, VECTORS
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan, judged_queries
from graphrerank.evaluation.ranking import (
    OtherEdges,
    rerank,
    run_pipelines,
    run_reranker,
    tune_restart_prob,
)
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.systems import RankedDataset, System, base_ranking
from graphrerank.features.text_match import MATCH_FEATURES, TextMatch
from graphrerank.operators.gcs import GCS
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import VectorSearch
from tests.support.encoders import HashPairEncoder

RETRIEVER = System("retriever", base_ranking, reads_graph=False)


def prefer_first_triangle(graphs: CandidateGraphs) -> torch.Tensor:
    return -graphs.nodes.float()


def test_a_ranked_system_holds_its_ranking_and_what_it_took(prepared: PreparedDataset) -> None:
    queries = torch.tensor([0, 2])
    search = {"retrieve": [1.0, 1.0]}
    row = run_reranker(prepared, queries, System("first", prefer_first_triangle), search=search)
    assert (row.name, row.kind, row.source, row.on_other_edges) == ("first", "operator", "first", {})
    assert torch.equal(row.ranking.nodes, rerank(prepared, queries, System("first", prefer_first_triangle)).nodes)
    assert list(row.cost.ms) == ["retrieve", "graph", "rerank", "total"]
    assert row.cost.ms["total"]["p50"] == pytest.approx(1 + row.cost.latency_ms["p50"])  # retrieval is not its own
    assert row.cost.encodings is None
    alone = run_reranker(prepared, queries, RETRIEVER)
    assert alone.cost.ms["total"] == alone.cost.latency_ms


def test_rankings_are_padded_and_sorted_and_a_batch_equals_singles(prepared: PreparedDataset) -> None:
    first = System("first", prefer_first_triangle)
    ranking = rerank(prepared, torch.tensor([1, 0]), first)
    assert ranking.nodes.tolist() == [[0, 3, 4, -1], [0, 1, 3, 4]]
    assert ranking.scores.tolist() == [[0.0, -3.0, -4.0, -math.inf], [0.0, -1.0, -3.0, -4.0]]
    singles = [rerank(prepared, torch.tensor([query]), first).nodes for query in (1, 0)]
    assert torch.equal(ranking.nodes, torch.cat(singles))


def test_systems_see_edges_and_vectors_only_where_they_ask(prepared: PreparedDataset) -> None:
    seen = {}

    def spy(name: str):
        def score(graphs: CandidateGraphs) -> torch.Tensor:
            seen[name] = (graphs.edge_index.shape[1], "node_vectors" in graphs.inputs, graphs.num_graphs)
            return graphs.x[:, 0]

        return score

    for system in (System("a", spy("a"), reads_graph=False), System("b", spy("b"), inputs=VECTORS)):
        run_reranker(prepared, torch.arange(3), system)
    assert seen["a"][:2] == (0, False)
    assert seen["b"][0] > 0
    assert seen["b"][1:] == (True, 1)  # the last calls time one query at a time


def test_pairs_are_counted_where_a_system_reads_them(prepared: PreparedDataset) -> None:
    reading = replace(prepared, pair_encoder=HashPairEncoder())
    pairs = System("pairs", lambda graphs: graphs.inputs["pair_vectors"][:, 0], inputs=PAIRS)
    row, plain = (run_reranker(reading, torch.arange(3), system) for system in (pairs, RETRIEVER))
    assert (row.cost.encodings, plain.cost.encodings) == (4.0, None)


def test_nan_scores_are_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="must not hold NaN"):
        run_reranker(prepared, torch.arange(3), System("broken", lambda graphs: graphs.x[:, 0] * torch.nan))


def test_the_best_of_the_grid_wins_and_the_first_of_equals(prepared: PreparedDataset) -> None:
    tried = []

    def build(restart_prob: float):
        tried.append(restart_prob)
        better = restart_prob in (0.4, 0.6)  # by node number, PR@2 is 1/3; in the base ranking's order it is 0

        def score(graphs: CandidateGraphs):
            return -graphs.nodes.float() if better else graphs.x[:, 0]

        return score

    assert tune_restart_prob(prepared, "val", build, measure="PR@2") == 0.4
    assert tried == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]


QUERIES = torch.arange(3)


class Spy:
    """Scores as the retriever did, and keeps the graphs that it scored."""

    def __init__(self) -> None:
        self.seen: list[CandidateGraphs] = []

    def __call__(self, graphs: CandidateGraphs) -> torch.Tensor:
        self.seen.append(graphs)
        return graphs.x[:, 0]


def test_removed_edges_are_not_seen_and_what_reads_none_is_not_tried(prepared: PreparedDataset) -> None:
    gcs, edges = System("gcs", GCS(restart_prob=0.3).score), OtherEdges(prepared)
    assert list(edges.systems(gcs)) == ["shuffled", "removed"]  # one type alone is not left out
    base = rerank(prepared, QUERIES, RETRIEVER).scores
    row = run_reranker(prepared, QUERIES, gcs, other_edges=OtherEdges(prepared, ["removed"]))
    assert list(row.on_other_edges) == ["removed"]
    assert torch.equal(row.on_other_edges["removed"].scores, base)
    assert not torch.equal(row.ranking.scores, base)
    assert run_reranker(prepared, QUERIES, RETRIEVER, other_edges=edges).on_other_edges == {}


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
    for changed in (system, *(OtherEdges(prepared).systems(system)["shuffled"] for _ in range(2))):
        rerank(prepared, QUERIES, changed)
    before, after, again = (graphs.edge_index for graphs in spy.seen)
    assert torch.equal(*(torch.bincount(edges[1], minlength=24) for edges in (before, after)))
    assert not torch.equal(before, after)
    assert torch.equal(after, again)  # seeded


def test_each_type_is_shuffled_and_its_words_follow(prepared: PreparedDataset) -> None:
    with_match = eight(prepared, edge_type=torch.arange(14) % 2 * 3).with_features(("base_score", *MATCH_FEATURES))
    spy = Spy()
    system = System("spy", spy, inputs=SCORES.with_edge_types())
    others = OtherEdges(with_match).systems(system)
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
    rerank(with_match, QUERIES, OtherEdges(with_match).systems(System("merged", spy))["shuffled"])
    assert spy.seen[-1].edge_type is None


def typed(prepared: PreparedDataset) -> PreparedDataset:
    """Six passages, of which the first two are joined by two types, and others by one."""
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2], [3, 4]]), torch.tensor([0, 1, 0, 1])
    weight = torch.tensor([1.0, 3.0, 1.0, 1.0])
    return all_of(prepared, CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges, weight, edge_type=types))


@pytest.mark.parametrize("inputs", [SCORES, SCORES.with_edge_types()], ids=["merged", "typed"])
def test_each_type_is_left_out_in_turn(prepared: PreparedDataset, inputs: ModelInputs) -> None:
    prepared, spy = typed(prepared), Spy()
    others = OtherEdges(prepared, ["each_type"]).systems(System("spy", spy, inputs=inputs))
    assert list(others) == ["without reference", "without entity"]
    for number, system in enumerate(others.values()):
        rerank(prepared, QUERIES, system)
        corpus = prepared.dataset.graph.with_types([other for other in range(len(EDGE_TYPES)) if other != number])
        keep = inputs.reads_edge_types
        edge_index, weight, _, edge_type = candidate_edges(corpus, prepared.ranking.nodes, keep_types=keep)
        assert torch.equal(spy.seen[-1].edge_index, edge_index)
        assert torch.equal(spy.seen[-1].edge_attr, weight)
        assert edge_type is None or torch.equal(spy.seen[-1].edge_type, edge_type)


class Fixed:
    """A retriever that knows the ranking of each query by its id."""

    feature_names = ("base_score",)
    RANKINGS = {"qa": [0, 1, 2], "qb": [3, 4, 2], "qc": [4, 3, 1]}  # noqa: RUF012

    def __init__(self, graph: CorpusGraph, *, top_k: int, reverse: bool = False) -> None:
        self.top_k, self.reverse = top_k, reverse

    def retrieve(self, queries: Queries) -> Ranking:
        rows = [sorted(self.RANKINGS[i], reverse=True) if self.reverse else self.RANKINGS[i] for i in queries.ids]
        nodes = torch.tensor(rows)[:, : self.top_k]
        return Ranking(nodes, -torch.arange(nodes.shape[1]).float().expand(nodes.shape))


@pytest.fixture
def small() -> PreparedDataset:
    graph = CorpusGraph.from_edges(list("vwxyz"), [""] * 5, torch.tensor([[0, 3]]))
    qrels = Qrels(torch.tensor([2, 0, 0, 1]), torch.tensor([3, 0, 4, 1]), torch.ones(4))
    dataset = Dataset("small", graph, ["qb", "qc", "qa"], ["b", "c", "a"], {"test": qrels})
    return PreparedDataset(dataset, None, Ranking(torch.zeros(3, 0).long(), torch.zeros(3, 0)), ("base_score",))


def pipelines(graph: CorpusGraph) -> dict[str, Pipeline]:
    return {
        name: Pipeline(graph, steps=[VectorSearch], retriever=partial(Fixed, reverse=reverse), budget=3)
        for name, reverse in (("reversed", True), ("plain", False))
    }


def judged(small: PreparedDataset, *, limit: int | None = None, alone: int = 0) -> DatasetResult:
    queries = judged_queries(small.dataset, "test", limit)
    ranked = run_pipelines(small, queries, pipelines(small.dataset.graph), alone=alone)
    return measure_systems(
        RankedDataset(small.dataset, "test", queries, ranked),
        EvaluationPlan(["R@1", "R@3", "nDCG@10", "TR", "MissTR"], resamples=100),
    )


def test_measures_of_pipelines_by_hand(small: PreparedDataset) -> None:
    result = judged(small)
    assert list(result.query_ids) == ["qb", "qc", "qa"]
    plain, other = result.systems["plain"], result.systems["reversed"]
    # relevant: v and z of qb, w of qc, y of qa; found by plain: z at rank 2, w at rank 3, nothing
    assert plain.values["R@3"].tolist() == [0.5, 1.0, 0.0]
    assert plain.values["R@1"].tolist() == [0.0, 0.0, 0.0]
    assert other.values["R@1"].tolist() == [0.5, 0.0, 0.0]
    near = 1 / (1 + torch.log(torch.tensor(2.0)).item())  # one hop from a retrieved node of degree 1
    assert plain.values["TR"].tolist() == pytest.approx([(1 + near) / 2, 1.0, near])
    assert plain.values["MissTR"].tolist() == pytest.approx([near / 2, 0.0, near])
    assert plain.ranking.nodes.tolist() == [[3, 4, 2], [4, 3, 1], [0, 1, 2]]
    assert (plain.kind, plain.source, plain.routes) == ("pipeline", "pipeline=plain", {})


def test_what_it_takes(small: PreparedDataset) -> None:
    cost = judged(small).systems["plain"].cost
    assert (cost.encodings, cost.pair_ms) == (None, None)
    assert list(cost.batch_ms) == ["retrieve", "other"]
    assert (cost.ms, cost.latency_ms) == ({}, {})
    timed = judged(small, alone=2).systems["plain"].cost
    assert list(timed.ms) == ["retrieve", "other", "total"]
    assert timed.latency_ms == timed.ms["total"]


def test_the_first_queries_by_id(small: PreparedDataset) -> None:
    result = judged(small, limit=2)
    assert list(result.query_ids) == ["qb", "qa"]  # qa and qb are the first, in the order of the data set
    ranking = result.systems["plain"].ranking
    assert ranking.nodes.tolist() == [[3, 4, 2], [0, 1, 2]]
    with pytest.raises(ValueError, match="`num_queries` must be a positive integer, got 0"):
        judged(small, limit=0)
