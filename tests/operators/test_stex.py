import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import Ranking
from graphrerank.core import ranking as ranking_module
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.passages import Passages
from graphrerank.operators import stex
from graphrerank.operators.stex import Expansion, semantic_topological_expansion
from tests.operators.corpora import corpus_of, random_edges

DIM = 4
FIELDS = tuple(Expansion.__dataclass_fields__)


def corpus(num_nodes: int, num_edges: int, *, seed: int = 0, isolated: int = 0) -> CorpusGraph:
    """A random graph with random vectors; the last ``isolated`` nodes have no edge."""
    generator = torch.Generator().manual_seed(seed)
    edges = random_edges(num_nodes - isolated, num_edges, generator)
    return corpus_of([""] * num_nodes, torch.randn(num_nodes, DIM, generator=generator), edges)


def ranking(rows: list[list[int]]) -> Ranking:
    width = max((len(row) for row in rows), default=0)
    nodes = torch.tensor([row + [-1] * (width - len(row)) for row in rows]).reshape(len(rows), width).long()
    scores = torch.linspace(1, 0.5, width).expand(len(rows), width)
    return Ranking(nodes, scores.masked_fill(nodes < 0, -torch.inf))


def random_seeds(num_nodes: int, sizes: list[int], *, seed: int = 0) -> Ranking:
    rng = random.Random(seed)
    return ranking([rng.sample(range(num_nodes), size) for size in sizes])


def neighbour_sets(graph: CorpusGraph) -> list[set[int]]:
    return [set(graph.indices[start:end].tolist()) for start, end in zip(graph.indptr, graph.indptr[1:], strict=False)]


def same(one: Expansion, other: Expansion) -> bool:
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in FIELDS)


def facts_of(v_q: Tensor, v_n: Tensor, n_ret: list[int], a: set[int], degree: int, beta: float) -> dict[str, float]:
    """Lines 3 to 12 of Algorithm 3, for one node with the seeds ``a``."""
    r_max, r_best, i_struct = len(n_ret), min(n_ret.index(v) + 1 for v in a), 0.0
    if r_max > 1:
        i_struct = 1 - (r_best - 1) / (r_max - 1)
    c_max = min(degree, r_max)
    if c_max > 1:
        i_struct += min(1, (len(a) - 1) / (c_max - 1))  # above 1 after two hops alone
    i_sim = sum(float(x) * float(y) for x, y in zip(v_q, v_n, strict=True))
    return {"scores": i_sim + beta * i_struct, "best_seed_rank": r_best, "seeds_reached": len(a), "hops": 1}


def algorithm_3(
    v_q: Tensor, vectors: Tensor, edges: list[set[int]], n_ret: list[int], beta: float, excluded: set[int]
) -> dict[int, dict[str, float]]:
    """FastInsight's Algorithm 3, line by line; line 1 leaves out ``excluded`` too."""
    n_stex = {n_j for n_i in n_ret for n_j in edges[n_i]} - set(n_ret) - excluded
    reached = {n: {v for v in n_ret if v in edges[n]} for n in n_stex}
    return {n: facts_of(v_q, vectors[n], n_ret, a, len(edges[n]), beta) for n, a in reached.items()}


def check_row(found: Expansion, row: int, facts: dict[int, dict[str, float]], seeds: Ranking, top_k: int) -> None:
    """Compare one row with the naive facts, best first, ties by node number, then padding."""
    order = sorted(facts, key=lambda n: (facts[n]["hops"], -round(facts[n]["scores"], 5), n))[:top_k]
    assert found.nodes[row].tolist() == order + [-1] * (top_k - len(order))
    expected = torch.tensor([float(facts[n]["scores"]) for n in order] + [-torch.inf] * (top_k - len(order)))
    torch.testing.assert_close(found.scores[row], expected, atol=1e-5, rtol=0)
    for name in ("best_seed_rank", "seeds_reached", "hops"):
        assert getattr(found, name)[row].tolist() == [facts[n][name] for n in order] + [0] * (top_k - len(order))
    best = [float(seeds.scores[row, int(facts[n]["best_seed_rank"]) - 1]) for n in order]
    assert found.best_seed_score[row].tolist() == best + [0.0] * (top_k - len(order))


def row_of(seeds: Ranking, row: int) -> list[int]:
    return [node for node in seeds.nodes[row].tolist() if node >= 0]


@pytest.mark.parametrize("structure_weight", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("seed", range(5))
def test_against_algorithm_3(seed: int, structure_weight: float) -> None:
    graph = corpus(40, 20 * (seed + 1), seed=seed, isolated=8)
    seeds = random_seeds(40, [12, 1, 0, 7, 2, 40, 3], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(7, DIM, generator=generator)
    exclude = torch.randint(-1, 40, (7, 5), generator=generator)
    for top_k in (1, 6, 50):
        found = semantic_topological_expansion(
            graph, seeds, queries, top_k=top_k, exclude=exclude, structure_weight=structure_weight
        )
        for row in range(7):
            edges, excluded = neighbour_sets(graph), set(exclude[row].tolist())
            facts = algorithm_3(queries[row], graph.embedding, edges, row_of(seeds, row), structure_weight, excluded)
            check_row(found, row, facts, seeds, top_k)


def two_hops(
    v_q: Tensor, vectors: Tensor, edges: list[set[int]], n_ret: list[int], beta: float, excluded: set[int], top_k: int
) -> dict[int, dict[str, float]]:
    """One hop; where it leaves room, the neighbours of what it found, each with the seeds two steps away."""
    near = algorithm_3(v_q, vectors, edges, n_ret, beta, excluded)
    if len(near) >= top_k:
        return near
    far = {n for m in near for n in edges[m]} - set(near) - set(n_ret) - excluded
    facts = dict(near)
    for n in far:
        a = {v for v in n_ret for m in near if n in edges[m] and v in edges[m]}
        facts[n] = facts_of(v_q, vectors[n], n_ret, a, len(edges[n]), beta) | {"hops": 2}
    return facts


@pytest.mark.parametrize("top_k", [3, 8, 60])
@pytest.mark.parametrize("seed", range(6))
def test_two_hops_against_naive_loop(seed: int, top_k: int) -> None:
    graph = corpus(60, 40 + 10 * seed, seed=seed)
    seeds = random_seeds(60, [6, 2, 0, 1, 15], seed=seed)
    queries = torch.randn(5, DIM, generator=torch.Generator().manual_seed(seed))
    exclude = torch.tensor([[3, 9, -1]]).expand(5, 3)
    found = semantic_topological_expansion(graph, seeds, queries, top_k=top_k, exclude=exclude, hops=2)
    for row in range(5):
        facts = two_hops(queries[row], graph.embedding, neighbour_sets(graph), row_of(seeds, row), 1.0, {3, 9}, top_k)
        check_row(found, row, facts, seeds, top_k)


@pytest.fixture
def small() -> CorpusGraph:
    """0 - 3, 1 - 3, 1 - 4, 2 - 4, 4 - 5; node 6 has no edge."""
    edges = torch.tensor([[0, 3], [1, 3], [1, 4], [2, 4], [4, 5]])
    return corpus_of([""] * 7, torch.tensor([[0.0], [0.0], [0.0], [-0.25], [0.5], [1.0], [2.0]]), edges)


@pytest.mark.parametrize(
    ("rows", "exclude"),
    [([[6]], None), ([[0, 1, 2, 3, 4, 5, 6]], None), ([[0, 3]], torch.tensor([[1]])), ([[]], None)],
    ids=["isolated seed", "seeds are the whole graph", "all neighbours excluded", "no seeds"],
)
def test_nothing_to_expand_is_padding(small: CorpusGraph, rows: list[list[int]], exclude: Tensor | None) -> None:
    found = semantic_topological_expansion(small, ranking(rows), torch.ones(1, 1), top_k=2, exclude=exclude, hops=2)
    assert found.nodes.tolist() == [[-1, -1]]
    assert found.scores.tolist() == [[-torch.inf, -torch.inf]]
    for name in FIELDS[2:]:
        assert getattr(found, name).tolist() == [[0, 0]]


def test_ties_break_by_node_number_also_at_the_cut() -> None:
    star = torch.tensor([[9, leaf] for leaf in (8, 2, 5, 0, 7)])
    found = semantic_topological_expansion(
        corpus_of([""] * 10, torch.ones(10, 1), star), ranking([[9, 1]]), torch.ones(1, 1), top_k=3
    )
    assert found.nodes.tolist() == [[0, 2, 5]]
    assert found.scores.tolist() == [[2.0, 2.0, 2.0]]


def case() -> tuple[CorpusGraph, Ranking, Tensor, Tensor]:
    graph = corpus(80, 240, seed=3, isolated=5)
    seeds = random_seeds(80, [9, 0, 30, 1, 4, 12], seed=3)
    generator = torch.Generator().manual_seed(3)
    return graph, seeds, torch.randn(6, DIM, generator=generator), torch.randint(-1, 80, (6, 9), generator=generator)


def test_any_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, seeds, queries, exclude = case()
    whole = semantic_topological_expansion(graph, seeds, queries, top_k=25, exclude=exclude, hops=2)
    for block in (1, 7, 60):
        monkeypatch.setattr(stex, "BLOCK_PATHS", block)
        monkeypatch.setattr(ranking_module, "BLOCK_VECTORS", block)
        parts = semantic_topological_expansion(graph, seeds, queries, top_k=25, exclude=exclude, hops=2)
        assert same(parts, whole)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"top_k": 0}, "`top_k` must be a positive integer, got 0"),
        ({"structure_weight": -1.0}, "`structure_weight` must not be negative, got -1.0"),
        ({"query_vectors": torch.ones(2, DIM)}, r"`query_vectors` must have shape \[1, 4\], got \[2, 4\]"),
        ({"query_vectors": None}, r"`query_vectors` must have shape \[1, 4\], got None"),
        ({"only": torch.tensor([[9]])}, "`only` must be node indices from 0 to 8, got 9"),
        ({"exclude": torch.tensor([[9]])}, "`exclude` must be node indices from 0 to 8, got 9"),
        ({"seeds": ranking([[12]])}, "`seeds` must lie in 0 to 8 or be -1, got 12"),
        ({"seeds": Ranking(torch.tensor([[-1, 2]]), torch.ones(1, 2))}, "the padding of `seeds` must come last"),
        ({"seeds": ranking([[2, 5, 2]])}, "`seeds` must be unique per query, got 2 in row 0"),
    ],
)
def test_arguments_out_of_range_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"seeds": ranking([[0, 1]]), "query_vectors": torch.ones(1, DIM), "top_k": 3, **change}
    with pytest.raises(ValueError, match=message):
        semantic_topological_expansion(corpus(9, 12), **arguments)
    with pytest.raises(ValueError, match="`graph` must have an embedding"):
        semantic_topological_expansion(corpus_of([""]), ranking([[0]]), torch.ones(1, 1), top_k=1)


@pytest.mark.parametrize("hops", [1, 2])
def test_shared_entities_are_as_the_edges_they_stand_for(hops: int) -> None:
    """No two passages share two entities here, so that the degrees are those of the plain graph."""
    graph, seeds, queries, exclude = case()
    held: list[list[str]] = [[] for _ in range(80)]
    pairs = torch.stack([torch.arange(0, 78, 3), torch.arange(0, 78, 3) + 2], dim=1)
    joined = graph.typed_edges()[0].tolist()
    pairs = torch.tensor([pair for pair in pairs.tolist() if pair not in joined])
    for number, (one, other) in enumerate(pairs.tolist()):
        held[one].append(f"e{number}")
        held[other].append(f"e{number}")
    shared = graph.with_entities(EntityIncidence.from_names(held))
    settings: dict[str, Any] = {"top_k": 25, "exclude": exclude, "hops": hops}
    found = semantic_topological_expansion(shared, seeds, queries, **settings)
    listed = graph.with_edges(pairs, torch.ones(len(pairs)))
    expected = semantic_topological_expansion(listed, seeds, queries, **settings)
    assert same(found, expected)
    before = semantic_topological_expansion(graph, seeds, queries, **settings)
    assert not torch.equal(before.nodes, found.nodes)


def test_without_similarity_no_vectors_are_read() -> None:
    graph, seeds, queries, exclude = case()
    bare = CorpusGraph(Passages(graph.node_ids, graph.texts), graph.indptr, graph.indices, graph.weight)
    settings: dict[str, Any] = {"top_k": 25, "exclude": exclude, "structure_weight": 2.0, "hops": 2}
    found = semantic_topological_expansion(bare, seeds, None, similarity_weight=0.0, **settings)
    blind = graph.with_embedding(torch.zeros(80, DIM))  # all as like as each other
    expected = semantic_topological_expansion(blind, seeds, queries, **settings)
    assert same(found, expected)
    assert (found.nodes >= 0).sum() > 25


def test_only_some_nodes_are_entered_as_if_all_others_were_excluded() -> None:
    graph, seeds, queries, exclude = case()
    only = torch.arange(0, 80, 2).expand(len(seeds), -1)
    found = semantic_topological_expansion(graph, seeds, queries, top_k=25, exclude=exclude, only=only)
    odd = torch.cat([exclude, torch.arange(1, 80, 2).expand(len(seeds), -1)], dim=1)
    expected = semantic_topological_expansion(graph, seeds, queries, top_k=25, exclude=odd)
    assert same(found, expected)
    assert (found.nodes >= 0).any()


def test_one_step_of_the_walks_by_hand() -> None:
    """Two seeds, a and b, on a - c - b - d, with e alone; e's row is another query of one seed."""
    edges = torch.tensor([[0, 2], [1, 2], [1, 3]])
    graph = CorpusGraph.from_edges(list("abcde"), [""] * 5, edges)
    step = stex._Step(
        graph=graph,
        query_vectors=None,
        num_seeds=torch.tensor([2, 1]),
        max_rank=2,
        allowed=None,
        similarity_weight=0.0,
        structure_weight=2.0,
        edge_type=None,
    )
    paths = stex._WalkPaths(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 4]), torch.tensor([1, 2, 1]))
    walks = step.walk(paths, forbidden=torch.tensor([0, 1, 9]))
    assert [tuple(walk) for walk in zip(*(field.tolist() for field in walks), strict=True)] == [
        (0, 2, 1),  # row, node, rank of the seed
        (0, 2, 2),
        (0, 3, 2),
    ]
    reached = step.score(walks, hop=1)
    assert reached.node.tolist() == [2, 3]
    assert reached.num_seeds.tolist() == [2, 1]
    assert reached.best_rank.tolist() == [1, 2]
    assert reached.score.tolist() == [2 * (1 + 1), 2 * (0 + 0)]  # d has one neighbour: its second term is guarded
    assert reached.hops.tolist() == [1, 1]
    without_c = replace(step, allowed=torch.tensor([3])).walk(paths, torch.tensor([0, 1, 9]))
    assert without_c.node.tolist() == [3]
