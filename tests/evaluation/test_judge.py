import math
from dataclasses import replace

import pytest
import torch

from graphrerank.data import PreparedDataset, Qrels
from graphrerank.evaluation import System, base_ranking, compare_with_baselines, judge, peak_memory_mib, rerank
from graphrerank.evaluation.judge import MEASURES
from graphrerank.graphs import CandidateGraphs


def prefer_first_triangle(graphs: CandidateGraphs) -> torch.Tensor:
    assert graphs.nodes is not None
    return -graphs.nodes.float()


def test_measures_by_hand(prepared: PreparedDataset) -> None:
    systems = [System("base_ranking", base_ranking, reads_graph=False), System("first", prefer_first_triangle)]
    result = judge(prepared, "val", systems, measures=("PR@2", "PR@10", "R@10", "nDCG@10"))
    # base: x ranks d a e b (relevant a b: ranks 2, 4), y ranks d a e (relevant d e: ranks 1, 3), z: c alone, rank 1
    ideal = 1 + 1 / math.log2(3)
    gains = [1 / math.log2(3) + 1 / math.log2(5), 1 + 1 / math.log2(4), 1.0]
    base = result.systems["base_ranking"].measures
    assert base == pytest.approx(
        {"PR@2": 0.0, "PR@10": 2 / 3, "R@10": (1 + 1 + 0.5) / 3, "nDCG@10": sum(gains) / 3 / ideal}
    )
    assert result.systems["first"].measures["PR@2"] == pytest.approx(1 / 3)  # x: a b; y: a d; z: a b
    assert result.ceiling == pytest.approx(2 / 3)
    assert result.top_k == 4
    assert list(result.query_ids) == ["x", "y", "z"]


def test_rankings_are_padded_and_sorted(prepared: PreparedDataset) -> None:
    ranking = rerank(prepared, torch.tensor([1, 0]), System("first", prefer_first_triangle))
    assert ranking.nodes.tolist() == [[0, 3, 4, -1], [0, 1, 3, 4]]
    assert ranking.scores.tolist() == [[0.0, -3.0, -4.0, -math.inf], [0.0, -1.0, -3.0, -4.0]]


def test_padding_to_top_k_when_a_whole_batch_is_short(prepared: PreparedDataset) -> None:
    ranking = rerank(prepared, torch.tensor([1]), System("first", prefer_first_triangle))
    assert ranking.nodes.tolist() == [[0, 3, 4, -1]]


def test_a_batch_equals_singles(prepared: PreparedDataset) -> None:
    system = System("base_ranking", base_ranking)
    together = rerank(prepared, torch.arange(3), system)
    for query in range(3):
        alone = rerank(prepared, torch.tensor([query]), system)
        assert torch.equal(together.nodes[query], alone.nodes[0])


def test_systems_see_edges_and_vectors_only_where_they_ask(prepared: PreparedDataset) -> None:
    seen = {}

    def spy(name: str):
        def score(graphs: CandidateGraphs) -> torch.Tensor:
            seen[name] = (graphs.edge_index.shape[1], graphs.node_vectors is not None, graphs.num_graphs)
            return graphs.x[:, 0]

        return score

    judge(prepared, "val", [System("a", spy("a"), reads_graph=False), System("b", spy("b"), reads_vectors=True)])
    assert seen["a"][:2] == (0, False)
    assert seen["b"][0] > 0
    assert seen["b"][1:] == (True, 1)  # the last calls time one query at a time


def test_json_holds_what_the_table_shows(prepared: PreparedDataset) -> None:
    content = judge(prepared, "val", [System("base_ranking", base_ranking)]).to_json()
    assert content["split"] == "val"
    assert content["queries"] == 3
    system = content["systems"]["base_ranking"]
    assert set(system) == {*MEASURES, "interval", "latency_ms"}
    assert set(system["interval"]) == {"PR@10", "nDCG@10"}
    assert set(system["latency_ms"]) == {"p50", "p95"}
    assert content["comparisons"] == []


def test_values_are_what_the_means_are_of(prepared: PreparedDataset) -> None:
    result = judge(prepared, "val", [System("base_ranking", base_ranking)]).systems["base_ranking"]
    # x ranks d a e b, y ranks d a e, z ranks c a b d; relevant are a b, d e, and c with one that is no candidate
    assert result.values["R@2"].tolist() == [0.5, 0.5, 0.5]
    assert result.values["R@5"].tolist() == [1.0, 1.0, 0.5]
    assert result.values["PR@5"].tolist() == [1.0, 1.0, 0.0]
    assert result.measures == {name: float(per_query.mean()) for name, per_query in result.values.items()}
    low, high = result.intervals["PR@10"]
    assert 0 <= low < result.measures["PR@10"] < high <= 1


def test_no_query_with_several_relevant_is_null_in_json(prepared: PreparedDataset) -> None:
    single = Qrels(torch.tensor([0, 1]), torch.tensor([0, 3]), torch.ones(2))
    dataset = replace(prepared.dataset, splits={"val": single})
    result = judge(replace(prepared, dataset=dataset), "val", [System("base_ranking", base_ranking)])
    assert math.isnan(result.systems["base_ranking"].measures["PR@10/multi"])
    assert result.to_json()["systems"]["base_ranking"]["PR@10/multi"] is None


def test_the_last_system_is_compared_with_the_baselines_that_are_there() -> None:
    ones, zeros = torch.ones(40, dtype=torch.float64), torch.zeros(40, dtype=torch.float64)
    half = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(20)
    values = {
        "base_ranking": {"PR@10": zeros},
        "ppr": {"PR@10": zeros},
        "mlp": {"PR@10": half},
        "gatv2": {"PR@10": ones},
    }
    base, mlp = compare_with_baselines(values, ["PR@10"])
    assert (base.baseline, base.measure, base.difference) == ("base_ranking", "PR@10", 1.0)
    assert (mlp.baseline, mlp.difference) == ("mlp", 0.5)
    assert base.p_value == 1 / 10_001
    assert compare_with_baselines({"mlp": {"PR@10": ones}}, ["PR@10"]) == []


def test_judge_compares(prepared: PreparedDataset) -> None:
    systems = [System("base_ranking", base_ranking), System("first", prefer_first_triangle)]
    result = judge(prepared, "val", systems)
    assert [(entry.baseline, entry.measure) for entry in result.comparisons] == [
        ("base_ranking", "PR@10"),
        ("base_ranking", "nDCG@10"),
    ]
    entry = result.comparisons[1]
    means = [result.systems[name].measures["nDCG@10"] for name in ("first", "base_ranking")]
    assert entry.difference == pytest.approx(means[0] - means[1])
    assert result.to_json()["comparisons"][0] == {
        "system": "first", "baseline": "base_ranking", "measure": "PR@10", "difference": 0.0, "p_value": 1.0,
    }  # fmt: skip


def test_unknown_split_is_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match=r"data set 'toy' has the splits \['val'\], got 'test'"):
        judge(prepared, "test", [System("base_ranking", base_ranking)])


def test_nan_scores_are_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="must not hold NaN"):
        judge(prepared, "val", [System("broken", lambda graphs: graphs.x[:, 0] * torch.nan)])


def test_peak_memory_is_that_of_this_process() -> None:
    before = peak_memory_mib()
    block = torch.ones(64 << 18)  # 64 MiB
    assert before <= peak_memory_mib() <= before + 2 * 64 + 64
    assert block.sum() == 64 << 18
