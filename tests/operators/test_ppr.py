import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import networkx as nx
import pytest
import torch
from torch import Tensor

from graphrerank.core import CandidateGraphs, Ranking
from graphrerank.corpus import CorpusGraph, EntityIncidence, candidate_edges
from graphrerank.operators import ppr
from graphrerank.operators.gcs import GCS, num_smoothing_steps
from graphrerank.operators.ppr import PPR, CorpusPPR, EntityPPR, personalized_pagerank
from tests.operators.corpora import random_edges

MakeGraphs = Callable[..., CandidateGraphs]
RESTARTS = [0.15, 0.5, 0.8]
NAMES = [["rome", "nero"], ["rome", "metz"], ["metz"], ["nero", "oslo"], ["oslo", "rome"], []]


def ours(graphs: CandidateGraphs, restart_prob: float, seeds: Tensor | None = None) -> Tensor:
    return personalized_pagerank(
        graphs.x[:, 0] if seeds is None else seeds,
        graphs.edge_index,
        graphs.edge_attr,
        graphs.ptr,
        restart_prob=restart_prob,
        num_steps=num_smoothing_steps(restart_prob, 1e-13),
    )


@pytest.mark.parametrize("restart_prob", RESTARTS)
@pytest.mark.parametrize("seed", range(4))
def test_against_networkx(seed: int, restart_prob: float, random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(seed, sizes=(14,))
    peer = nx.DiGraph()
    peer.add_nodes_from(range(14))
    for (source, target), weight in zip(graphs.edge_index.T.tolist(), graphs.edge_attr.tolist(), strict=True):
        peer.add_edge(source, target, weight=weight)
    assert any(degree == 0 for _, degree in peer.out_degree())  # dangling nodes are put to the test
    seeds = dict(enumerate(graphs.x[:, 0].tolist()))
    expected = nx.pagerank(peer, alpha=1 - restart_prob, personalization=seeds, tol=1e-14, max_iter=1000)
    torch.testing.assert_close(
        ours(graphs, restart_prob), torch.tensor([expected[i] for i in range(14)], dtype=torch.float64)
    )


def test_four_nodes_worked_by_hand() -> None:
    # A path 0 - 1 - 2 and an isolated node 3; seeds (3, 0, 0, 1), so r = (3/4, 0, 0, 1/4); c = 0.5. Columns of P sum
    # to 1: P10 = 1, P01 = P21 = 1/2, P12 = 1; node 3 dangles, its mass goes back to r.
    #   p0 = 3/8 + p1/4 + 3/8 p3,  p1 = p0/2 + p2/2,  p2 = p1/4,  p3 = 1/8 + p3/8
    #   p3 = 1/7;  p1 = p0/2 + p1/8  =>  p1 = 4/7 p0;  p0 = 3/8 + p0/7 + 3/56  =>  6/7 p0 = 3/7  =>  p0 = 1/2
    #   p1 = 2/7,  p2 = 1/14;  the sum is 1/2 + 2/7 + 1/14 + 1/7 = 1
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    seeds, weight = torch.tensor([[3.0], [0.0], [0.0], [1.0]]).double(), torch.ones(4).double()
    graphs = CandidateGraphs(seeds, edge_index, weight, torch.tensor([0, 4]))
    torch.testing.assert_close(ours(graphs, 0.5), torch.tensor([1 / 2, 2 / 7, 1 / 14, 1 / 7], dtype=torch.float64))


def test_number_of_steps_bounds_the_distance(random_graphs: MakeGraphs) -> None:
    for restart_prob in RESTARTS:
        graphs = random_graphs(7, sizes=(20,))
        found = PPR(restart_prob=restart_prob).score(graphs)
        assert (found - ours(graphs, restart_prob)).abs().sum() <= 2e-6


def test_seeds_that_are_all_zero_seed_evenly(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(2)
    nothing, even = torch.zeros(graphs.num_nodes).double(), torch.ones(graphs.num_nodes).double()
    torch.testing.assert_close(ours(graphs, 0.5, nothing), ours(graphs, 0.5, even))
    assert ours(graphs, 0.5, nothing).isfinite().all()


@pytest.mark.parametrize("model", [PPR(restart_prob=0.4), GCS()])
def test_batch_equals_single_graphs(model: PPR | GCS, random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(3)
    together = model.score(graphs)
    for start, stop in pairwise(graphs.ptr.tolist()):
        inside = (graphs.edge_index[1] >= start) & (graphs.edge_index[1] < stop)
        edges, ptr = graphs.edge_index[:, inside] - start, torch.tensor([0, stop - start])
        alone = CandidateGraphs(graphs.x[start:stop], edges, graphs.edge_attr[inside], ptr)
        torch.testing.assert_close(model.score(alone), together[start:stop])


def test_graphs_without_edges_or_nodes_keep_their_seeds() -> None:
    none, ptr = torch.zeros(2, 0, dtype=torch.int64), torch.tensor([0, 2, 2, 3])
    graphs = CandidateGraphs(torch.tensor([[3.0], [1.0], [2.0]]), none, torch.zeros(0), ptr)
    torch.testing.assert_close(ours(graphs, 0.5), torch.tensor([0.75, 0.25, 1.0]))


def test_negative_base_scores_seed_nothing_and_negative_seeds_are_refused(random_graphs: MakeGraphs) -> None:
    graphs = random_graphs(5, sizes=(10,))
    shifted = CandidateGraphs(graphs.x - 0.5, graphs.edge_index, graphs.edge_attr, graphs.ptr)
    expected = ours(graphs, 0.5, (graphs.x[:, 0] - 0.5).clamp(min=0))
    torch.testing.assert_close(PPR().score(shifted), expected, atol=2e-6, rtol=0)
    with pytest.raises(ValueError, match="`seed` must not be negative, got -"):
        ours(shifted, 0.5)


@pytest.mark.parametrize("restart_prob", [0.0, -0.1, 1.1, float("nan")])
def test_restart_prob_out_of_range_is_refused(restart_prob: float) -> None:
    for build in (GCS, PPR, partial(CorpusPPR, corpus())):
        with pytest.raises(ValueError, match=r"`restart_prob` must lie in \(0, 1\], got"):
            build(restart_prob=restart_prob)


def corpus(seed: int = 0, *, num_nodes: int = 40, num_edges: int = 70, undirected: bool = True) -> CorpusGraph:
    """A random weighted graph whose last four nodes are isolated."""
    generator = torch.Generator().manual_seed(seed)
    edges = random_edges(num_nodes - 4, num_edges, generator)
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
def test_corpus_against_networkx(restart_prob: float, undirected: bool) -> None:
    graph, seeds = corpus(undirected=undirected), random_seeds()
    found = CorpusPPR(graph, restart_prob=restart_prob).score(seeds.nodes, seeds.scores)
    for row, (nodes, scores) in enumerate(zip(seeds.nodes.tolist(), seeds.scores.tolist(), strict=True)):
        personal = {node: score for node, score in zip(nodes, scores, strict=True) if node >= 0}
        settings = {"personalization": personal, "dangling": personal, "tol": 1e-12, "max_iter": 999}
        expected = nx.pagerank(as_networkx(graph), alpha=1 - restart_prob, **settings)
        torch.testing.assert_close(found[row], torch.tensor(list(expected.values())), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.sum(1), torch.ones(5))


@pytest.mark.parametrize("edges", [0, 30])
def test_corpus_shared_entities_against_candidate_graphs(edges: int) -> None:
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


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_corpus_iterates_to_the_tolerance_and_no_further(tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds = corpus(num_edges=40), random_seeds()
    exact = CorpusPPR(graph, restart_prob=0.3).score(seeds.nodes, seeds.scores)
    monkeypatch.setattr(ppr, "TOLERANCE", tolerance)
    distance = (CorpusPPR(graph, restart_prob=0.3).score(seeds.nodes, seeds.scores) - exact).abs().sum(1).max()
    assert tolerance / 1000 < distance <= tolerance / 0.3


def ranking(rows: list[list[int]]) -> Ranking:
    nodes = torch.tensor(rows)
    return Ranking(nodes, torch.where(nodes >= 0, 1.0, -torch.inf))


def random_incidence(seed: int, num_nodes: int = 60, num_entities: int = 40) -> EntityIncidence:
    generator = torch.Generator().manual_seed(seed)
    held = torch.rand(num_nodes, num_entities, generator=generator) < 0.1
    names = [[f"e{number}" for number in row.nonzero().flatten().tolist()] for row in held]
    return EntityIncidence.from_names(names, max_share=1.0)


def specificity(incidence: EntityIncidence, name: str) -> float:
    return math.log1p(incidence.num_nodes / int(incidence.num_holders[list(incidence.names).index(name)]))


@pytest.mark.parametrize("seed", range(3))
def test_entities_against_networkx(seed: int) -> None:
    """A step of ours is two of a walk on the graph of passages and entities: from entity to entity."""
    incidence = random_incidence(seed)
    operator = EntityPPR(incidence, restart_prob=0.4, num_steps=60)
    seeds = torch.tensor([[3, 9, 20]])
    graph = nx.DiGraph()
    seed_weight: dict[str, float] = {}
    held = [
        [incidence.names[entity] for entity in incidence.indices[start:stop].tolist()]
        for start, stop in pairwise(incidence.indptr.tolist())
    ]
    for passage, names in enumerate(held):
        for name in names:
            graph.add_edge(name, passage, weight=1.0)
            graph.add_edge(passage, name, weight=specificity(incidence, name))
    for rank, passage in enumerate(seeds[0].tolist(), start=1):
        best = sorted(held[passage], key=lambda name: -specificity(incidence, name))[:5]
        total = sum(specificity(incidence, name) for name in best)
        for name in best:
            seed_weight[name] = seed_weight.get(name, 0) + specificity(incidence, name) / total / rank
    walk = nx.DiGraph()  # of entities: two steps of the graph above are one
    for source in incidence.names:
        for passage in graph.successors(source):
            out = sum(edge["weight"] for edge in graph[passage].values())
            for target, edge in graph[passage].items():
                share = edge["weight"] / out / graph.out_degree(source)
                before = walk[source][target]["weight"] if walk.has_edge(source, target) else 0.0
                walk.add_edge(source, target, weight=before + share)
    mass = nx.pagerank(walk, alpha=0.6, personalization=seed_weight, tol=1e-12, max_iter=500)
    expected = torch.zeros(incidence.num_nodes)
    for name, share in mass.items():
        for passage in graph.successors(name):
            expected[passage] += share / graph.out_degree(name)
    torch.testing.assert_close(operator.score(seeds)[0], expected, atol=1e-5, rtol=0)


def test_entities_what_is_excluded_or_not_reached_is_padding() -> None:
    operator = EntityPPR(EntityIncidence.from_names(NAMES))
    found = operator.expand(ranking([[2], [5]]), top_k=6, exclude=torch.tensor([[2, 0], [-1, -1]]))
    assert sorted(found.nodes[0].tolist()) == [-1, -1, -1, 1, 3, 4]
    assert found.nodes[1].tolist() == [-1] * 6  # it has no entity
    assert found.scores[1].tolist() == [-torch.inf] * 6


@pytest.mark.parametrize(
    "expand",
    [CorpusPPR(corpus()).expand, partial(EntityPPR(random_incidence(7)).expand, exclude=torch.full((5, 1), -1))],
    ids=["corpus", "entities"],
)
def test_blocks_of_queries_give_the_same(expand: Callable[..., Ranking], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = expand(random_seeds(), top_k=12)
    monkeypatch.setattr(ppr, "BLOCK_SCORES", 81)
    parts = expand(random_seeds(), top_k=12)
    assert torch.equal(parts.nodes, whole.nodes)
    torch.testing.assert_close(parts.scores, whole.scores)


def test_without_seeds_entities_or_queries() -> None:
    nothing, exclude = Ranking(torch.full((2, 3), -1), torch.full((2, 3), -torch.inf)), torch.full((2, 1), -1)
    none = Ranking(nothing.nodes[:0], nothing.scores[:0])
    walk, entities = CorpusPPR(corpus()), EntityPPR(EntityIncidence.from_names(NAMES))
    assert walk.expand(nothing, top_k=4).nodes.tolist() == [[-1] * 4] * 2
    assert entities.expand(nothing, top_k=4, exclude=exclude).nodes.tolist() == [[-1] * 4] * 2
    assert walk.expand(none, top_k=4).nodes.shape == (0, 4)
    assert entities.expand(none, top_k=4, exclude=exclude[:0]).nodes.shape == (0, 4)
    bare = EntityPPR(EntityIncidence.from_names([[], []]))
    assert bare.expand(ranking([[0]]), top_k=2, exclude=exclude[:1]).nodes.tolist() == [[-1, -1]]
