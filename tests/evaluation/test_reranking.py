import math
from dataclasses import replace

import pytest
import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.counterfactual import OtherEdges
from graphrerank.evaluation.reranking import measure_queries, rerank, run_reranker, tune_restart_prob
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.model_inputs import PAIRS, VECTORS

RETRIEVER = System("retriever", base_ranking, reads_graph=False)


def prefer_first_triangle(graphs: CandidateGraphs) -> torch.Tensor:
    assert graphs.nodes is not None
    return -graphs.nodes.float()


def test_measures_by_hand(prepared: PreparedDataset) -> None:
    names = ("PR@2", "PR@10", "R@2", "R@5", "nDCG@10")
    values = measure_queries(prepared, "val", RETRIEVER, measures=names)
    # x ranks d a e b (relevant a b: ranks 2, 4), y ranks d a e (relevant d e: ranks 1, 3), z: c alone, rank 1
    ideal = 1 + 1 / math.log2(3)
    gains = [1 / math.log2(3) + 1 / math.log2(5), 1 + 1 / math.log2(4), 1.0]
    assert list(values) == list(names)
    assert values["PR@2"].tolist() == [0.0, 0.0, 0.0]
    assert values["PR@10"].tolist() == [1.0, 1.0, 0.0]
    assert values["R@2"].tolist() == [0.5, 0.5, 0.5]
    assert values["R@5"].tolist() == [1.0, 1.0, 0.5]
    assert values["nDCG@10"].tolist() == pytest.approx([gain / ideal for gain in gains])
    first = measure_queries(prepared, "val", System("first", prefer_first_triangle), measures=["PR@2"])
    assert first["PR@2"].tolist() == [1.0, 0.0, 0.0]  # x: a b; y: a d; z: a b


def test_a_ranked_system_holds_its_ranking_and_what_it_took(prepared: PreparedDataset) -> None:
    queries = torch.tensor([0, 2])
    search = {"retrieve": [1.0, 1.0]}
    row = run_reranker(prepared, queries, System("first", prefer_first_triangle), search=search)
    assert (row.name, row.kind, row.source, row.on_other_edges) == ("first", "operator", "first", {})
    assert torch.equal(row.ranking.nodes, rerank(prepared, queries, System("first", prefer_first_triangle)).nodes)
    assert row.cost is not None
    assert list(row.cost.ms) == ["retrieve", "graph", "rerank", "total"]
    assert row.cost.ms["total"]["p50"] == pytest.approx(1 + row.cost.latency_ms["p50"])  # retrieval is not its own
    assert row.cost.encodings is None
    alone = run_reranker(prepared, queries, RETRIEVER)
    assert alone.cost is not None
    assert alone.cost.ms["total"] == alone.cost.latency_ms


def test_other_edges_are_tried_on_what_reads_edges(prepared: PreparedDataset) -> None:
    edges, queries = OtherEdges(prepared, ["removed"]), torch.arange(3)
    degree = System("degree", lambda graphs: torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes).float())
    row = run_reranker(prepared, queries, degree, other_edges=edges)
    assert list(row.on_other_edges) == ["removed"]
    assert row.on_other_edges["removed"].scores.nan_to_num(neginf=0).abs().max() == 0
    assert row.ranking.scores.max() > 0
    assert run_reranker(prepared, queries, RETRIEVER, other_edges=edges).on_other_edges == {}


def test_rankings_are_padded_and_sorted(prepared: PreparedDataset) -> None:
    ranking = rerank(prepared, torch.tensor([1, 0]), System("first", prefer_first_triangle))
    assert ranking.nodes.tolist() == [[0, 3, 4, -1], [0, 1, 3, 4]]
    assert ranking.scores.tolist() == [[0.0, -3.0, -4.0, -math.inf], [0.0, -1.0, -3.0, -4.0]]


def test_padding_to_top_k_when_a_whole_batch_is_short(prepared: PreparedDataset) -> None:
    ranking = rerank(prepared, torch.tensor([1]), System("first", prefer_first_triangle))
    assert ranking.nodes.tolist() == [[0, 3, 4, -1]]


def test_a_batch_equals_singles(prepared: PreparedDataset) -> None:
    together = rerank(prepared, torch.arange(3), RETRIEVER)
    for query in range(3):
        alone = rerank(prepared, torch.tensor([query]), RETRIEVER)
        assert torch.equal(together.nodes[query], alone.nodes[0])


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
    class Reader:
        fingerprint, hidden_size = "r", 2

        def encode(self, queries: list[str], passages: list[str]) -> torch.Tensor:
            return torch.ones(len(queries), 2)

    reading = replace(prepared, pair_encoder=Reader())
    pairs = System("pairs", lambda graphs: graphs.inputs["pair_vectors"][:, 0], inputs=PAIRS)
    row, plain = (run_reranker(reading, torch.arange(3), system) for system in (pairs, RETRIEVER))
    assert row.cost is not None
    assert plain.cost is not None
    assert (row.cost.encodings, plain.cost.encodings) == (4.0, None)


def test_unknown_split_is_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match=r"data set 'toy' has the splits \['val'\], got 'test'"):
        measure_queries(prepared, "test", RETRIEVER, measures=["R@5"])


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
