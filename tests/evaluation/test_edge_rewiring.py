from collections import Counter

import networkx as nx
import pytest
import torch

from graphrerank.evaluation.edge_rewiring import shuffle_each_type, shuffle_edges


def packed(graphs: list[nx.Graph]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both directions of all edges, with a weight of their own each."""
    start, columns, ptr = 0, [], [0]
    for graph in graphs:
        columns += [(start + a, start + b) for edge in graph.edges for a, b in (edge, edge[::-1])]
        start += graph.number_of_nodes()
        ptr.append(start)
    index = torch.tensor(columns, dtype=torch.int64).reshape(-1, 2).T
    return index, torch.arange(1.0, index.shape[1] + 1), torch.tensor(ptr)


def shuffled(graphs: list[nx.Graph], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    index, weight, ptr = packed(graphs)
    new, new_weight = shuffle_edges(index, weight, ptr, generator=torch.Generator().manual_seed(seed))
    return index, new, new_weight, ptr


@pytest.mark.parametrize("seed", range(3))
def test_degrees_stay_and_edges_change(seed: int) -> None:
    graphs = [nx.gnm_random_graph(30, 60, seed=seed), nx.empty_graph(3), nx.barabasi_albert_graph(40, 2, seed=seed)]
    before, after, weight, ptr = shuffled(graphs, seed)
    size = int(ptr[-1])
    assert torch.equal(torch.bincount(after[1], minlength=size), torch.bincount(before[1], minlength=size))
    assert torch.equal(torch.bincount(after[0], minlength=size), torch.bincount(before[0], minlength=size))
    assert (after[0] != after[1]).all()
    keys = after[1] * size + after[0]
    assert torch.equal(keys, torch.unique(keys))  # sorted by target, no edge twice
    graph = torch.bucketize(after, ptr[1:], right=True)
    assert torch.equal(graph[0], graph[1])  # no edge between two queries' graphs
    assert sorted(weight.tolist()) == list(range(1, before.shape[1] + 1))
    kept = torch.isin(keys, before[1] * size + before[0]).double().mean()
    assert float(kept) < 0.4


def test_an_edge_and_its_way_back_stay_together() -> None:
    _, after, weight, _ = shuffled([nx.gnm_random_graph(20, 40, seed=1)])
    by_edge = {(int(a), int(b)): int(w) for a, b, w in zip(*after, weight, strict=True)}
    for (a, b), w in by_edge.items():
        assert by_edge[b, a] == (w + 1 if w % 2 else w - 1)  # numbered one after the other


def test_every_wiring_comes_up() -> None:
    """Of the three rings over four nodes each comes up about as often."""
    _, after, _, _ = shuffled([nx.cycle_graph(4)] * 300)
    found = Counter(tuple(map(tuple, (after[:, after[1] // 4 == ring] % 4).T.tolist())) for ring in range(300))
    assert len(found) == 3
    assert min(found.values()) > 60


def test_what_cannot_change_stays() -> None:
    for graph in (nx.complete_graph(4), nx.star_graph(5), nx.path_graph(2), nx.empty_graph(2)):
        before, after, _, _ = shuffled([graph])
        assert set(map(tuple, after.T.tolist())) == set(map(tuple, before.T.tolist()))


def test_degrees_stay_in_each_type() -> None:
    graphs = [nx.gnm_random_graph(40, 90, seed=seed) for seed in (3, 4)]
    edges = torch.cat([packed([graph])[0] for graph in graphs], dim=1)
    types = torch.tensor([0, 3]).repeat_interleave(180)
    generator, ptr = torch.Generator().manual_seed(0), torch.tensor([0, 40])
    after, _, type_after = shuffle_each_type(edges, torch.ones(360), types, ptr, generator=generator)
    for number in (0, 3):
        old, new = edges[0, types == number], after[0, type_after == number]
        assert torch.equal(torch.bincount(old, minlength=40), torch.bincount(new, minlength=40))
    assert set(map(tuple, edges.T.tolist())) != set(map(tuple, after.T.tolist()))
