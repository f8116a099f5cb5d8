import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries, top_k_by_node_order
from graphrerank.corpus import CorpusGraph
from graphrerank.installation import extras
from graphrerank.operators import dense
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.vector_index import write_stored_index
from tests.operators.corpora import corpus_of, queries_of


def corpus(vectors: Tensor) -> CorpusGraph:
    return corpus_of([f"n{i}" for i in range(len(vectors))], vectors)


def asked(vectors: Tensor) -> Queries:
    return queries_of([f"q{i}" for i in range(len(vectors))], vectors)


def random_vectors(rows: int, dim: int = 8, *, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)), dim=1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("top_k", [1, 7, 60, 80])
def test_flat_against_torch_top_k(top_k: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    nodes, queries = (torch.randint(-2, 3, (rows, 4), generator=generator).float() for rows in (60, 9))  # many ties
    found = DenseRetriever(corpus(nodes), top_k=top_k).retrieve(asked(queries))
    expected_nodes, expected_scores = top_k_by_node_order(queries @ nodes.T, top_k)
    assert torch.equal(found.nodes, expected_nodes)
    assert torch.equal(found.scores, expected_scores)
    assert torch.equal(
        found.features, expected_scores.masked_fill(expected_nodes < 0, 0.0)[..., None].expand(-1, -1, 2)
    )


def test_equal_vectors_come_in_node_order_beyond_any_margin() -> None:
    nodes = random_vectors(200)
    nodes[20:180] = nodes[3]
    found = DenseRetriever(corpus(nodes), top_k=40).retrieve(asked(nodes[3:4]))
    assert found.nodes.tolist() == [[3, *range(20, 59)]]
    assert found.scores.unique().numel() == 1


def test_one_contested_query_and_blocks_leave_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = random_vectors(200)
    nodes[20:180] = nodes[3]
    queries = torch.cat([-nodes[3:4], nodes[3:4], nodes[7:8]])
    together = DenseRetriever(corpus(nodes), top_k=10).retrieve(asked(queries))
    for row in range(3):
        alone = DenseRetriever(corpus(nodes), top_k=10).retrieve(asked(queries[row : row + 1]))
        assert torch.equal(together.nodes[row], alone.nodes[0])
    monkeypatch.setattr(dense, "BLOCK_QUERIES", 2)
    assert torch.equal(DenseRetriever(corpus(nodes), top_k=10).retrieve(asked(queries)).nodes, together.nodes)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("settings", [{"index": "hnsw"}, {"index": "ivf"}, {"index": "ivf", "num_cells": 5}])
def test_approximate_indexes_find_nearly_the_same(settings: dict[str, str], half: bool) -> None:
    nodes, queries = random_vectors(2000, 16), random_vectors(30, 16, seed=1)
    nodes = nodes.half().float() if half else nodes
    exact = DenseRetriever(corpus(nodes), top_k=10).retrieve(asked(queries))
    held = corpus(nodes.half() if half else nodes)
    found = DenseRetriever(held, top_k=10, **settings).retrieve(asked(queries))
    overlap = (found.nodes[:, :, None] == exact.nodes[:, None]).any(2).float().mean()
    assert overlap > 0.9
    assert (found.scores[:, 1:] <= found.scores[:, :-1]).all()
    scores = torch.einsum("bkd,bd->bk", nodes[found.nodes], queries)
    torch.testing.assert_close(found.scores, scores)


class OnSecondGPU(torch.Tensor):
    """A tensor that says that it is on another GPU than the first."""

    device = torch.device("cuda", 1)


def test_an_index_is_on_the_gpu_of_the_vectors_and_on_none_without(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = list[int]()
    monkeypatch.setattr("faiss.get_num_gpus", lambda: 2)
    monkeypatch.setattr("faiss.StandardGpuResources", lambda: None, raising=False)
    monkeypatch.setattr("faiss.index_cpu_to_gpu", lambda _, gpu, index: placed.append(gpu) or index, raising=False)
    nodes, queries = random_vectors(300, 16), random_vectors(2, 16)
    for vectors, index, expected in ((nodes, "ivf", []), (nodes.as_subclass(OnSecondGPU), "ivf", [1])):
        retriever = DenseRetriever(corpus(nodes), top_k=5, index=index)
        retriever._embedding = vectors
        retriever._propose(queries, 5)
        assert placed == expected


def test_a_stored_ivf_index_is_copied_to_the_gpu_of_the_vectors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    placed = list[int]()
    monkeypatch.setattr("faiss.get_num_gpus", lambda: 2)
    monkeypatch.setattr("faiss.StandardGpuResources", lambda: None, raising=False)
    monkeypatch.setattr("faiss.index_cpu_to_gpu", lambda _, gpu, index: placed.append(gpu) or index, raising=False)
    nodes = random_vectors(300, 16)
    write_stored_index(tmp_path / "vectors.ivf", nodes)
    for removed, expected in ((None, [1]), (torch.arange(300) < 3, [1])):  # removed nodes need the CPU
        graph = corpus(nodes) if removed is None else corpus(nodes).with_passages(removed=removed)
        retriever = DenseRetriever(graph, top_k=5, index="ivf")
        retriever._stored_index, retriever._embedding = tmp_path / "vectors.ivf", nodes.as_subclass(OnSecondGPU)
        assert retriever._index[0].ntotal == 300
        assert placed == expected


@pytest.mark.parametrize("index", ["ivf", "hnsw"])
def test_removed_nodes_are_not_found(index: str) -> None:
    nodes = random_vectors(600, 16)
    removed = torch.arange(600) % 2 == 0  # all queries
    graph = corpus(nodes).with_passages(removed=removed)
    found = DenseRetriever(graph, top_k=50, index=index, num_probes=4).retrieve(asked(nodes[::30])).nodes
    assert (found % 2 != 0).all()
    assert (found >= 0).any()


def test_exact_search_needs_no_faiss_and_others_name_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    nodes, queries = random_vectors(50), random_vectors(4, seed=1)
    found = DenseRetriever(corpus(nodes), top_k=7).retrieve(asked(queries))
    assert torch.equal(found.nodes, (queries @ nodes.T).topk(7).indices)
    monkeypatch.setattr(extras, "is_installed", lambda name: False)
    with pytest.raises(ImportError, match=r"retriever.index=hnsw needs .*pip install .graphrerank\[faiss\]"):
        DenseRetriever(corpus(random_vectors(3)), index="hnsw")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"index": "annoy"}, r"`index` must be one of \['flat', 'hnsw', 'ivf'\], got 'annoy'"),
        ({"links": 1}, "`links` must be at least 2, got 1"),
        ({"num_cells": 0}, "`num_cells` must be a positive integer, got 0"),
        ({"index": "ivf", "num_cells": 4}, "`num_cells` must be at most the number of nodes, 3, got 4"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DenseRetriever(corpus(random_vectors(3)), **arguments).retrieve(asked(random_vectors(1)))


@pytest.mark.parametrize("top_k", [1, 7, 60, 80])
def test_float16_vectors_rank_as_the_same_numbers_in_float32(top_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    nodes, queries = (torch.randint(-2, 3, (rows, 4), generator=generator).float() for rows in (60, 9))  # many ties
    here = DenseRetriever(corpus(nodes), top_k=top_k).retrieve(asked(queries))
    for block in (7, 1 << 14):
        monkeypatch.setattr(dense, "BLOCK_VECTORS", block)
        there = DenseRetriever(corpus(nodes.half()), top_k=top_k).retrieve(asked(queries))
        assert torch.equal(there.nodes, here.nodes)
        assert torch.equal(there.scores, here.scores)
