import networkx as nx
import pytest
import torch

from graphrerank.graphs import CorpusGraph, EntityIncidence, Ranking, candidate_edges
from graphrerank.operators import corpus_ppr
from graphrerank.operators.corpus_ppr import CorpusPPR
from graphrerank.operators.ppr import personalized_pagerank


def corpus(seed: int = 0, *, num_nodes: int = 40, num_edges: int = 70, undirected: bool = True) -> CorpusGraph:
    """A random weighted graph whose last four nodes are isolated."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, num_nodes - 4, (num_edges, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    weight = torch.rand(len(edges), generator=generator) + 0.1
    ids = [str(i) for i in range(num_nodes)]
    return CorpusGraph.from_edges(ids, ids, edges, weight, undirected=undirected)


def random_seeds(num_queries: int = 5, *, num_nodes: int = 40, seed: int = 1) -> Ranking:
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.stack([torch.randperm(num_nodes, generator=generator)[:6] for _ in range(num_queries)])
    scores = torch.rand(nodes.shape, generator=generator).sort(dim=1, descending=True).values
    nodes[0, 3:], scores[0, 3:] = -1, -torch.inf
    return Ranking(nodes, scores)


def as_networkx(graph: CorpusGraph) -> nx.DiGraph:
    row = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degree)
    directed = nx.DiGraph()
    directed.add_nodes_from(range(graph.num_nodes))
    directed.add_weighted_edges_from(zip(graph.indices.tolist(), row.tolist(), graph.weight.tolist(), strict=True))
    return directed


@pytest.mark.parametrize("restart_prob", [0.15, 0.5, 0.9])
@pytest.mark.parametrize("undirected", [True, False])
def test_against_networkx(restart_prob: float, undirected: bool) -> None:
    graph, seeds = corpus(undirected=undirected), random_seeds()
    found = CorpusPPR(graph, restart_prob=restart_prob).score(seeds.nodes, seeds.scores)
    for row, (nodes, scores) in enumerate(zip(seeds.nodes.tolist(), seeds.scores.tolist(), strict=True)):
        personal = {node: score for node, score in zip(nodes, scores, strict=True) if node >= 0}
        expected = nx.pagerank(
            as_networkx(graph),
            alpha=1 - restart_prob,
            personalization=personal,
            dangling=personal,
            tol=1e-12,
            max_iter=999,
        )
        torch.testing.assert_close(found[row], torch.tensor(list(expected.values())), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(1), torch.ones(5))


@pytest.mark.parametrize("edges", [0, 30])
def test_shared_entities_against_candidate_graphs(edges: int) -> None:
    names = [[f"e{(node * 7 + k) % 13}" for k in range(node % 4)] for node in range(30)]
    graph = corpus(num_nodes=30, num_edges=0).with_entities(EntityIncidence.from_names(names, max_share=1.0))
    if edges:  # between passages that share nothing, where both kinds of edges would add up
        shared, _, _, _ = candidate_edges(graph, torch.arange(30)[None])
        pairs = [(a, b) for a in range(30) for b in range(a) if [a, b] not in shared.T.tolist()][::9]
        graph = graph.with_edges(torch.tensor(pairs), torch.full((len(pairs),), 0.5))
    edge_index, weight, ptr, _ = candidate_edges(graph, torch.arange(30)[None])
    seed = torch.zeros(30)
    seed[[2, 5, 11]] = torch.tensor([0.5, 0.3, 0.2])
    expected = personalized_pagerank(seed, edge_index, weight, ptr, restart_prob=0.4, num_steps=60)
    found = CorpusPPR(graph, restart_prob=0.4).score(torch.tensor([[2, 5, 11]]), torch.tensor([[5.0, 3.0, 2.0]]))
    torch.testing.assert_close(found[0], expected, atol=1e-6, rtol=0)
    assert (expected > 0).sum() > 10


@pytest.mark.parametrize("restart_prob", [0.05, 0.3])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_the_residual_is_within_the_tolerance(restart_prob: float, tolerance: float) -> None:
    graph, seeds = corpus(num_edges=40), random_seeds()
    found = CorpusPPR(graph, restart_prob=restart_prob, tolerance=tolerance).score(seeds.nodes, seeds.scores).double()
    row = torch.repeat_interleave(torch.arange(40), graph.degree)
    A = torch.zeros(40, 40, dtype=torch.float64)
    A[row, graph.indices] = graph.weight.double()
    P = A / A.sum(0).clamp(min=1e-30)
    weight = seeds.scores.double().clamp(min=0)
    reset = torch.zeros(5, 40, dtype=torch.float64).scatter_add_(1, seeds.nodes.clamp(min=0), weight)
    reset = reset / reset.sum(1, keepdim=True)
    lost = (found * (A.sum(0) == 0)).sum(1, keepdim=True)
    following = restart_prob * reset + (1 - restart_prob) * (found @ P.T + lost * reset)
    residual = (following - found).abs().sum(1).max()
    assert residual <= tolerance * 1.1 + 1e-7
    assert residual > tolerance / 1000  # it stopped when it could


def test_blocks_of_queries_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    operator, seeds = CorpusPPR(corpus()), random_seeds()
    whole = operator.expand(seeds, top_k=12)
    monkeypatch.setattr(corpus_ppr, "BLOCK_SCORES", 81)
    parts = operator.expand(seeds, top_k=12)
    assert torch.equal(parts.nodes, whole.nodes)
    torch.testing.assert_close(parts.scores, whole.scores)


def test_by_hand() -> None:
    graph = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1]]))
    found = CorpusPPR(graph, restart_prob=0.5)
    seeds = Ranking(torch.tensor([[0, 2], [3, -1]]), torch.tensor([[0.3, 0.1], [-1.0, -torch.inf]]))
    ranked = found.expand(seeds, top_k=3)
    # restarts 3/4 at a, 1/4 at c; c has no edge and gives its mass back: c = 1/2 (1/4) + 1/2 (c / 4) = 1/7
    # b = a / 2 and a = 1/2 (3/4) + 1/2 (b + 3/4 c), so that a = 4/7
    assert ranked.nodes.tolist() == [[0, 1, 2], [3, -1, -1]]
    torch.testing.assert_close(ranked.scores[0], torch.tensor([4 / 7, 2 / 7, 1 / 7]), atol=1e-5, rtol=0)
    assert ranked.scores[1].tolist() == [1.0, -torch.inf, -torch.inf]


def test_without_seeds_and_without_queries() -> None:
    operator = CorpusPPR(corpus())
    nothing = Ranking(torch.full((2, 3), -1), torch.full((2, 3), -torch.inf))
    assert operator.expand(nothing, top_k=4).nodes.tolist() == [[-1] * 4] * 2
    assert operator.expand(Ranking(nothing.nodes[:0], nothing.scores[:0]), top_k=4).nodes.shape == (0, 4)


def test_state_moves_with_the_module() -> None:
    assert {buffer.device.type for buffer in CorpusPPR(corpus()).to("meta").buffers()} == {"meta"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restart_prob": 0.0}, r"`restart_prob` must lie in \(0, 1\], got 0.0"),
        ({"restart_prob": 1.5}, r"`restart_prob` must lie in \(0, 1\], got 1.5"),
        ({"tolerance": 0.0}, r"`tolerance` must lie in \(0, 1\), got 0.0"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CorpusPPR(corpus(), **arguments)
