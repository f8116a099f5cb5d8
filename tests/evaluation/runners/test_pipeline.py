from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank.config.components import ComponentFactory
from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan, judged_queries
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.runners.base import RankingTask
from graphrerank.evaluation.runners.pipeline import PipelineRunner, run_pipelines, stage_seconds
from graphrerank.evaluation.systems import RankedDataset
from graphrerank.pipelines.pipeline import Pipeline, Retrieved
from graphrerank.pipelines.steps import VectorSearch


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


def judged(small: PreparedDataset, *, limit: int | None = None, num_timed: int = 0) -> DatasetResult:
    queries = judged_queries(small.dataset, "test", limit)
    ranked = run_pipelines(small, queries, pipelines(small.dataset.graph), num_timed=num_timed)
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
    timed = judged(small, num_timed=2).systems["plain"].cost
    assert list(timed.ms) == ["retrieve", "other", "total"]
    assert timed.latency_ms == timed.ms["total"]


def test_the_first_queries_by_id(small: PreparedDataset) -> None:
    result = judged(small, limit=2)
    assert list(result.query_ids) == ["qb", "qa"]  # qa and qb are the first, in the order of the data set
    ranking = result.systems["plain"].ranking
    assert ranking.nodes.tolist() == [[3, 4, 2], [0, 1, 2]]
    with pytest.raises(ValueError, match="`num_queries` must be a positive integer, got 0"):
        judged(small, limit=0)


def test_the_cost_of_cached_pairs_is_the_time_of_reading_them() -> None:
    seconds = {"retrieve": 0.5, "encode": 0.0}
    result = Retrieved(Ranking(torch.zeros(1, 1).long(), torch.zeros(1, 1)), torch.tensor([40]), seconds)
    assert stage_seconds(result, 0.75, None) == {"retrieve": 0.5, "encode": 0.0, "other": 0.25}
    assert stage_seconds(result, 0.75, 10.0) == {"retrieve": 0.5, "encode": 0.4, "other": 0.25}


def test_pipelines_are_built_over_the_graph_of_a_task(small: PreparedDataset, tmp_path: Path) -> None:
    components = ComponentFactory(cache=tmp_path)
    built = pipelines(small.dataset.graph)["plain"]
    given = {"built": built, "factory": components.component("pipeline", lambda graph, **_: built.over(graph))}
    runner = PipelineRunner(given, components, retriever=partial(Fixed, top_k=3))
    assert runner.build(small)["built"] is built
    assert runner.build(small, is_filtered=True)["built"] is not built
    rows = runner.run(RankingTask(small.dataset, "test", torch.tensor([0, 2]), small))
    assert list(rows) == ["built", "factory"]
    assert rows["built"][0].ranking.nodes.tolist() == [[3, 4, 2], [0, 1, 2]]
    assert torch.equal(rows["factory"][0].ranking.nodes, rows["built"][0].ranking.nodes)
    assert list(rows["built"][0].cost.ms) == ["retrieve", "other", "total"]


def test_a_pipeline_that_cannot_be_built_is_named(small: PreparedDataset, tmp_path: Path) -> None:
    def refuse(graph: CorpusGraph, **_: object) -> Pipeline:
        raise ValueError("no such step")

    components = ComponentFactory(cache=tmp_path)
    runner = PipelineRunner({"mine": components.component("pipeline", refuse)}, components)
    with pytest.raises(ValueError, match="mine: no such step"):
        runner.build(small)
