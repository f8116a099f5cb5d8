import math

import pytest
import torch

from graphrerank.data import PreparedDataset
from graphrerank.evaluation import System, base_ranking, judge, peak_memory_mib, rerank
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
    assert set(system) == {"PR@5", "PR@10", "PR@10/multi", "R@10", "nDCG@10", "latency_ms"}
    assert set(system["latency_ms"]) == {"p50", "p95"}


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
