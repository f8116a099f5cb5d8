from functools import partial

import pytest
import torch

from graphrerank.data import PreparedDataset, Qrels, RetrievalDataset
from graphrerank.evaluation import judge_pipelines, pipelines_table, render_pipelines, trec_run, write_pipeline_runs
from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.pipelines import Pipeline, VectorSearch


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
def prepared() -> PreparedDataset:
    graph = CorpusGraph.from_edges(list("vwxyz"), [""] * 5, torch.tensor([[0, 3]]))
    qrels = Qrels(torch.tensor([2, 0, 0, 1]), torch.tensor([3, 0, 4, 1]), torch.ones(4))
    dataset = RetrievalDataset("small", graph, ["qb", "qc", "qa"], ["b", "c", "a"], {"test": qrels})
    return PreparedDataset(dataset, None, Ranking(torch.zeros(3, 0).long(), torch.zeros(3, 0)), ("base_score",))


def pipelines(graph: CorpusGraph) -> dict[str, Pipeline]:
    return {
        name: Pipeline(graph, steps=[VectorSearch], retriever=partial(Fixed, reverse=reverse), budget=3)
        for name, reverse in (("reversed", True), ("plain", False))
    }


def test_measures_by_hand(prepared: PreparedDataset) -> None:
    result = judge_pipelines(prepared, "test", pipelines(prepared.dataset.graph), measures=["R@1", "R@3", "nDCG@10"])
    assert list(result.query_ids) == ["qa", "qb", "qc"]
    plain, other = result.pipelines["plain"], result.pipelines["reversed"]
    # relevant: y of qa, v and z of qb, w of qc; found by plain: nothing, z at rank 2, w at rank 3
    assert plain.values["R@3"].tolist() == [0.0, 0.5, 1.0]
    assert plain.values["R@1"].tolist() == [0.0, 0.0, 0.0]
    assert other.values["R@1"].tolist() == [0.0, 0.5, 0.0]
    assert plain.measures["R@3"] == pytest.approx(0.5)
    near = 1 / (1 + torch.log(torch.tensor(2.0)).item())  # one hop from a retrieved node of degree 1
    assert plain.values["TR"].tolist() == pytest.approx([near, (1 + near) / 2, 1.0])
    assert plain.ranking.nodes.tolist() == [[0, 1, 2], [3, 4, 2], [4, 3, 1]]
    assert plain.intervals["R@3"][0] <= 0.5 <= plain.intervals["R@3"][1]
    assert plain.encodings == 0.0
    assert list(plain.ms) == ["retrieve", "other"]
    assert plain.overhead == 1.0
    assert plain.values["MissTR"].tolist() == pytest.approx([near, near / 2, 0.0])
    assert result.pair_ms is None


def test_the_last_is_compared_with_the_others(prepared: PreparedDataset) -> None:
    result = judge_pipelines(prepared, "test", pipelines(prepared.dataset.graph))
    assert [(entry.baseline, entry.measure) for entry in result.comparisons] == [
        ("reversed", "CR@10"), ("reversed", "nDCG@10"),
    ]  # fmt: skip
    plain, other = result.pipelines["plain"], result.pipelines["reversed"]
    assert result.comparisons[1].difference == pytest.approx(plain.measures["nDCG@10"] - other.measures["nDCG@10"])
    assert 0 < result.comparisons[1].p_value <= 1


def test_the_first_queries_by_id(prepared: PreparedDataset) -> None:
    result = judge_pipelines(prepared, "test", pipelines(prepared.dataset.graph), limit=2)
    assert list(result.query_ids) == ["qa", "qb"]
    assert result.pipelines["plain"].ranking.nodes.tolist() == [[0, 1, 2], [3, 4, 2]]
    with pytest.raises(ValueError, match="`limit` must be a positive integer, got 0"):
        judge_pipelines(prepared, "test", {}, limit=0)


def test_what_is_left_behind(prepared: PreparedDataset, tmp_path) -> None:
    result = judge_pipelines(prepared, "test", pipelines(prepared.dataset.graph))
    content = result.to_json()
    assert content["queries"] == 3
    assert content["pipelines"]["plain"]["CR@10"] == result.pipelines["plain"].measures["CR@10"]
    assert set(content["pipelines"]["plain"]) == {
        "CR@10",
        "nDCG@10",
        "R@5",
        "R@10",
        "TR",
        "MissTR",
        "interval",
        "encodings",
        "ms",
        "overhead",
    }
    assert content["comparisons"][0]["pipeline"] == "plain"
    table = pipelines_table(result)
    assert list(table.columns[0].cells) == ["reversed", "plain"]
    assert list(table.columns[1].cells) == [f"{100 * r.measures['CR@10']:.2f}" for r in result.pipelines.values()]
    report = render_pipelines([result])
    assert "## small test: 3 queries" in report
    assert "- plain against reversed: CR@10 " in report
    low, high = (100 * end for end in result.pipelines["plain"].intervals["CR@10"])
    assert f"| plain | {low:.1f} to {high:.1f} |" in report
    write_pipeline_runs(tmp_path, result, prepared.dataset.graph)
    expected = trec_run(result.query_ids, list("vwxyz"), result.pipelines["plain"].ranking, tag="plain")
    assert (tmp_path / "small.plain.trec").read_text() == expected
