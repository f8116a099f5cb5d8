from functools import partial

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.report import notes_of
from graphrerank.evaluation.result import dataset_metrics
from graphrerank.evaluation.runners.pipeline import run_pipelines
from graphrerank.evaluation.systems import RankedDataset
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.router import Router
from graphrerank.pipelines.steps import PageRank, VectorSearch
from graphrerank_papers.ea_graphrag.routing_benchmark import Choices, compare_routing
from graphrerank_papers.ea_graphrag.two_paths import ROUTED_MEASURES

DENSE_MS, GRAPH_MS, FUSION_MS, ROUTE_MS = 1.0, 10.0, 12.0, 2.0


def make(dense: list[int], graph: list[int], fusion: list[int], scores: list[float]) -> Choices:
    values = torch.tensor([dense, graph, fusion], dtype=torch.float64).T
    seconds = torch.tensor([DENSE_MS, GRAPH_MS, FUSION_MS], dtype=torch.float64).expand(len(scores), -1) / 1000
    route_seconds = torch.full((len(scores),), ROUTE_MS / 1000, dtype=torch.float64)
    timed = {"seconds": seconds, "scores": torch.tensor(scores), "route_seconds": route_seconds}
    return dict.fromkeys(ROUTED_MEASURES, values) | timed


def compare(choices: Choices, **settings: object):
    return compare_routing(choices, **{"thresholds": (0.3, 0.7), "without_fusion": (0.4, 0.5), **settings})


def routes(row: dict[str, float]) -> list[float]:
    return [row[f"to {route}"] for route in ("dense", "graph", "fusion")]


def test_rows_by_hand() -> None:
    choices = make(
        dense=[1, 1, 0, 0, 0, 1], graph=[0, 1, 1, 0, 1, 0], fusion=[1, 1, 0, 1, 1, 0],
        scores=[0.1, 0.25, 0.5, 0.42, 0.75, 0.9],
    )  # fmt: skip
    listed, tests = compare(choices, draws=20_000)
    rows = {row["paths"]: row for row in listed}
    assert list(rows) == ["dense", "graph", "fusion", "random", "no fusion", "full", "oracle"]
    assert rows["full"]["PR@5"] == pytest.approx(4 / 6)  # dense, dense, fusion, fusion, graph, graph: 1, 1, 0, 1, 1, 0
    assert routes(rows["full"]) == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert rows["full"]["ms"] == pytest.approx(2 * (DENSE_MS + GRAPH_MS + FUSION_MS) / 6 + ROUTE_MS)
    assert rows["no fusion"]["PR@5"] == pytest.approx(4 / 6)  # 1, 1, 1, 0, 1, 0: the middle, 0.45, parts the paths
    assert routes(rows["no fusion"]) == pytest.approx([3 / 6, 3 / 6, 0])
    assert rows["oracle"]["PR@5"] == 1
    assert routes(rows["oracle"]) == pytest.approx([0.5, 1 / 3, 1 / 6])  # the fastest
    assert rows["dense"]["ms"] == pytest.approx(DENSE_MS)
    assert rows["fusion"]["ms"] == pytest.approx(FUSION_MS + ROUTE_MS)
    assert tests["regret"] == pytest.approx(2 / 6)
    # random routing has the mean of all deals: each route has a third of the questions
    assert rows["random"]["PR@5"] == pytest.approx(float(choices["PR@5"].mean()), abs=0.01)
    assert rows["random"]["ms"] == pytest.approx((DENSE_MS + GRAPH_MS + FUSION_MS) / 3, rel=0.01)
    assert routes(rows["random"]) == pytest.approx(routes(rows["full"]))


def planted(num_questions: int, *, informed: bool) -> Choices:
    """Half the questions need the graph, the others the dense path; the score tells, or does not."""
    generator = torch.Generator().manual_seed(0)
    graph = torch.rand(num_questions, generator=generator) < 0.5
    known = graph.float() if informed else torch.rand(num_questions, generator=generator)
    never = [0] * num_questions
    return make((~graph).int().tolist(), graph.int().tolist(), never, (0.1 + 0.8 * known).tolist())


def test_informed_routing_differs_from_chance() -> None:
    _, tests = compare(planted(200, informed=True))
    assert tests["regret"] == 0
    assert tests["p draws"] == pytest.approx(1 / 1001)
    assert max(tests[f"p {way}"] for way in ("random", "dense", "graph")) < 0.001
    _, tests = compare(planted(200, informed=False), thresholds=(0.49, 0.51))
    assert min(tests["p random"], tests["p draws"]) > 0.05


def test_a_measure_that_no_question_has() -> None:
    missing = {"Answer@5": torch.full((20, 3), torch.nan, dtype=torch.float64)}
    rows, _ = compare({**planted(20, informed=True), **missing})
    assert all("Answer@5" not in row for row in rows)


class ByLength:
    """Sends long queries to the graph."""

    low, high = 0.3, 0.7

    def score(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([len(text) / 10 for text in texts])


def test_the_result_of_a_routed_pipeline_has_its_routes() -> None:
    graph = CorpusGraph.from_edges(list("vwxyz"), [""] * 5, torch.tensor([[0, 3]])).with_embedding(torch.eye(5))
    qrels = Qrels(torch.arange(4), torch.arange(4), torch.ones(4))
    dataset = Dataset("small", graph, list("abcd"), ["a", "bb", "ccccc", "ddddddddd"], {"test": qrels})
    none = Ranking(torch.zeros(4, 0).long(), torch.zeros(4, 0))
    prepared = PreparedDataset(dataset, torch.eye(5)[:4], none, ("base_score",))
    router = partial(Router, adapter=ByLength(), dense=[VectorSearch], graph=[VectorSearch, PageRank])
    pipelines = {
        name: Pipeline(graph, steps=[step], budget=3) for name, step in (("dense", VectorSearch), ("routed", router))
    }
    queries = torch.arange(4)
    ranked = RankedDataset(dataset, "test", queries, run_pipelines(prepared, queries, pipelines))
    result = measure_systems(ranked, EvaluationPlan(["R@5"], resamples=10))
    shares = {"dense": 0.5, "graph": 0.25, "fusion": 0.25}
    assert result.systems["routed"].routes == shares
    routes = {name: entry["routes"] for name, entry in dataset_metrics(result)["systems"].items()}
    assert routes == {"dense": {}, "routed": shares}
    assert notes_of(result, "own")[-1] == "routed: dense 50%, graph 25%, fusion 25% of the queries"
