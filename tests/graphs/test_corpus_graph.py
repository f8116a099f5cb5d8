import pytest
import torch

from graphrerank.graphs import CorpusGraph


def ids(num_nodes: int) -> list[str]:
    return [f"n{i}" for i in range(num_nodes)]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("undirected", [True, False])
def test_from_edges_against_naive_dict(seed: int, undirected: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    num_nodes = 9
    edges = torch.randint(0, num_nodes, (60, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]  # parallel edges stay, in both directions
    weight = torch.rand(len(edges), generator=generator) + 0.1
    expected: dict[tuple[int, int], float] = {}
    for (a, b), w in zip(edges.tolist(), weight.tolist(), strict=True):
        for pair in ((a, b), (b, a)) if undirected else ((a, b),):
            expected[pair] = max(expected.get(pair, 0.0), w)

    graph = CorpusGraph.from_edges(ids(num_nodes), [""] * num_nodes, edges, weight, undirected=undirected)

    found = [
        (node, int(graph.indices[slot]), float(graph.weight[slot]))
        for node in range(num_nodes)
        for slot in range(int(graph.indptr[node]), int(graph.indptr[node + 1]))
    ]
    assert found == [(a, b, w) for (a, b), w in sorted(expected.items())]
    assert graph.num_edges == len(expected)
    assert graph.degree.tolist() == [sum(a == node for a, _ in expected) for node in range(num_nodes)]


def test_weights_are_one_by_default() -> None:
    graph = CorpusGraph.from_edges(ids(2), ["", ""], torch.tensor([[0, 1]]))
    assert graph.weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("num_nodes", [0, 1, 3])
def test_graph_without_edges(num_nodes: int) -> None:
    graph = CorpusGraph.from_edges(ids(num_nodes), [""] * num_nodes, torch.zeros(0, 2, dtype=torch.int64))
    assert graph.indptr.tolist() == [0] * (num_nodes + 1)
    assert graph.num_edges == 0
    assert graph.num_nodes == num_nodes


def test_without_edges_keeps_the_passages() -> None:
    graph = CorpusGraph.from_edges(ids(3), ["a", "b", "c"], torch.tensor([[0, 1], [1, 2]]))
    bare = graph.without_edges()
    assert (bare.node_ids, bare.texts) == (graph.node_ids, graph.texts)
    assert bare.degree.tolist() == [0, 0, 0]
    assert graph.degree.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"texts": ["", ""]}, r"`texts` must have one entry per node \(3\), got 2"),
        ({"node_ids": ["a", "b", "a"]}, "`node_ids` must be unique, got 'a' twice"),
        ({"weight": torch.ones(3)}, r"`weight` must have one entry per edge \(2\), got 3"),
        ({"edges": torch.tensor([[0, 1], [1, 3]])}, r"`edges` must each join nodes 0 to 2, got \[1, 3\].* at row 1"),
        ({"edges": torch.tensor([[-1, 1], [1, 2]])}, r"`edges` must each join nodes 0 to 2, got \[-1, 1\]"),
        ({"edges": torch.tensor([[0, 1], [2, 2]])}, r"`edges` must each join two different nodes, got \[2, 2\]"),
        ({"edges": torch.tensor([[0, 1, 2], [1, 2, 0]])}, r"`edges` must be \[M, 2\], got \[2, 3\]"),
        ({"weight": torch.tensor([1.0, 0.0])}, "positive, finite weight, got .* with weight 0.0 at row 1"),
        ({"weight": torch.tensor([-1.0, 1.0])}, "positive, finite weight"),
        ({"weight": torch.tensor([1.0, torch.nan])}, "positive, finite weight"),
        ({"weight": torch.tensor([1.0, torch.inf])}, "positive, finite weight"),
    ],
)
def test_from_edges_refuses(changes: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {
        "node_ids": ["a", "b", "c"],
        "texts": ["", "", ""],
        "edges": torch.tensor([[0, 1], [1, 2]]),
        "weight": torch.ones(2),
    }
    with pytest.raises(ValueError, match=message):
        CorpusGraph.from_edges(**(arguments | changes))  # type: ignore[arg-type]


def test_with_embedding() -> None:
    graph = CorpusGraph.from_edges(ids(2), ["", ""], torch.tensor([[0, 1]]))
    vectors = torch.rand(2, 3)
    assert graph.embedding is None
    assert graph.with_embedding(vectors).embedding is vectors
    for wrong in (torch.rand(3, 3), torch.rand(2)):
        with pytest.raises(ValueError, match=r"`embedding` must be \[2, d\], got"):
            graph.with_embedding(wrong)
