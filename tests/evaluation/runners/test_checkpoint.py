from dataclasses import replace

import pytest
import torch

from graphrerank.core import CandidateGraphs
from graphrerank.core.model_inputs import PAIRS, VECTORS
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.runners.checkpoint import run_reranker
from graphrerank.evaluation.systems import System, base_ranking
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
