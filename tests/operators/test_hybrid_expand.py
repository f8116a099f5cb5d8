from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from graphrerank.graphs import CorpusGraph, EntityIncidence, Queries, Ranking
from graphrerank.graphs.edge_types import EDGE_TYPES
from graphrerank.operators import hybrid
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.hybrid_expand import HybridExpandRetriever
from tests.support import CONF

WORDS = ["fox", "dog", "bird", "tree", "river", "stone"]


def corpus(num_nodes: int = 40, num_edges: int = 60, *, seed: int = 0) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    texts = [
        " ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (4,), generator=generator)) for _ in range(num_nodes)
    ]
    edges = torch.randint(0, num_nodes, (num_edges, 2), generator=generator)
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(num_nodes)], texts, edges[edges[:, 0] != edges[:, 1]])
    return graph.with_embedding(F.normalize(torch.randn(num_nodes, 5, generator=generator), dim=1))


def queries(num_queries: int = 7, *, seed: int = 1) -> Queries:
    generator = torch.Generator().manual_seed(seed)
    texts = [" ".join(WORDS[(i + j) % len(WORDS)] for j in range(2)) for i in range(num_queries - 1)] + ["zebra"]
    vectors = F.normalize(torch.randn(num_queries, 5, generator=generator), dim=1)
    return Queries([f"q{i}" for i in range(num_queries)], texts, vectors)


def neighbours(graph: CorpusGraph, node: int) -> set[int]:
    return set(graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist())


def equal(one: Ranking, other: Ranking) -> bool:
    assert one.features is not None
    assert other.features is not None
    return (
        torch.equal(one.nodes, other.nodes)
        and torch.allclose(one.scores, other.scores)
        and torch.allclose(one.features, other.features)
    )


def expected_row(
    graph: CorpusGraph,
    scores: dict[int, tuple[float, float, float]],
    *,
    top_k: int,
    base_k: int,
    num_seeds: int,
    structure_weight: float,
) -> dict[int, list[float]]:
    """Features of one query's candidates, in order of the ranking, from all nodes' hybrid, BM25 and dense scores."""
    order = sorted(scores, key=lambda n: (-round(scores[n][0], 6), n))
    seeds, base = order[:num_seeds], order[:base_k]
    chosen = {node: [0.0, 0.0, 0.0, 0.0] for node in base}
    stex = {}
    for node in {near for seed in seeds for near in neighbours(graph, seed)} - set(base):
        ranks = [rank for rank, seed in enumerate(seeds, start=1) if seed in neighbours(graph, node)]
        most = min(len(neighbours(graph, node)), len(seeds))
        structure = 1 - (ranks[0] - 1) / (len(seeds) - 1) if len(seeds) > 1 else 0.0
        structure += (len(ranks) - 1) / (most - 1) if most > 1 else 0.0
        stex[node] = (scores[node][2] + structure_weight * structure, ranks)
    for node in sorted(stex, key=lambda n: (-round(stex[n][0], 6), n))[: top_k - base_k]:
        ranks = stex[node][1]
        chosen[node] = [1.0, scores[seeds[ranks[0] - 1]][0], 1 / ranks[0], len(ranks) / num_seeds]
    for node in order:
        if len(chosen) < top_k:
            chosen.setdefault(node, [0.0, 0.0, 0.0, 0.0])
    return {node: [*scores[node], *chosen[node]] for node in order if node in chosen}


@pytest.mark.parametrize(
    ("top_k", "base_k", "num_seeds", "structure_weight"),
    [(12, 6, 4, 0.5), (20, 5, 5, 0.0), (8, 7, 1, 1.0), (15, 10, 10, 3.0), (40, 30, 3, 0.5), (2, 1, 1, 0.5)],
)
@pytest.mark.parametrize("seed", range(3))
def test_against_naive_loop(seed: int, top_k: int, base_k: int, num_seeds: int, structure_weight: float) -> None:
    graph, asked = corpus(seed=seed), queries(seed=seed)
    found = HybridExpandRetriever(
        graph, top_k=top_k, base_k=base_k, num_seeds=num_seeds, structure_weight=structure_weight
    ).retrieve(asked)
    every = HybridRetriever(graph, top_k=graph.num_nodes).retrieve(asked)
    assert every.features is not None
    assert found.features is not None
    for row in range(len(asked)):
        pairs = zip(every.nodes[row].tolist(), every.features[row].tolist(), strict=True)
        expected = expected_row(
            graph,
            {node: (parts[0], parts[1], parts[2]) for node, parts in pairs},
            top_k=top_k,
            base_k=base_k,
            num_seeds=num_seeds,
            structure_weight=structure_weight,
        )
        assert found.nodes[row].tolist() == list(expected)
        torch.testing.assert_close(found.features[row], torch.tensor(list(expected.values())), atol=1e-5, rtol=0)
        assert torch.equal(found.scores[row], found.features[row, :, 0])


def line(edges: list[list[int]]) -> CorpusGraph:
    """Seven nodes with cosines 1.0, 0.8, 0.6, 0.4, 0.2, 0.0 and -0.2 to the query (1, 0); no words."""
    cosine = torch.tensor([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.2])
    vectors = torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1)
    graph = CorpusGraph.from_edges(list("abcdefg"), ["dog"] * 7, torch.tensor(edges).reshape(-1, 2).long())
    return graph.with_embedding(vectors)


def test_features_by_hand() -> None:
    graph = line([[0, 5], [1, 5], [1, 6], [0, 1]])
    retriever = HybridExpandRetriever(graph, top_k=4, base_k=2, num_seeds=2, bm25_weight=0.0, dense_weight=1.0)
    found = retriever.retrieve(Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]])))
    assert found.nodes.tolist() == [[0, 1, 5, 6]]  # c, d and e are better, but no neighbours
    assert retriever.feature_names == (
        "base_score", "bm25_score", "dense_score", "hops", "best_seed_score", "best_seed_reciprocal_rank",
        "seeds_reached",
    )  # fmt: skip
    expected = [
        [1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.8, 0.0, 0.8, 0.0, 0.0, 0.0, 0.0],  # a neighbour of a seed too, but found by the hybrid ranking
        [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0],  # reached by both seeds
        [-0.2, 0.0, -0.2, 1.0, 0.8, 0.5, 0.5],  # by the second
    ]
    assert found.features is not None
    torch.testing.assert_close(found.features, torch.tensor([expected]))


def test_too_few_neighbours_are_filled_from_the_hybrid_ranking() -> None:
    retriever = HybridExpandRetriever(line([[0, 6]]), top_k=5, base_k=2, num_seeds=2)
    found = retriever.retrieve(Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]])))
    assert found.nodes.tolist() == [[0, 1, 2, 3, 6]]
    assert found.features is not None
    assert found.features[0, :, 3].tolist() == [0, 0, 0, 0, 1]  # the filling ones are of the hybrid ranking


def test_neighbour_that_the_longer_hybrid_ranking_holds_comes_once_as_neighbour() -> None:
    retriever = HybridExpandRetriever(line([[0, 2]]), top_k=4, base_k=2, num_seeds=2)
    found = retriever.retrieve(Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]])))
    assert found.nodes.tolist() == [[0, 1, 2, 3]]
    assert found.features is not None
    assert found.features[0, :, 3].tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(("hops", "nodes", "steps"), [(1, [0, 1, 5], [0, 0, 1]), (2, [0, 4, 5], [0, 2, 1])])
def test_second_hop_only_on_request(hops: int, nodes: list[int], steps: list[int]) -> None:
    retriever = HybridExpandRetriever(line([[0, 5], [5, 4], [4, 6]]), top_k=3, base_k=1, num_seeds=1, hops=hops)
    found = retriever.retrieve(Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]])))
    assert found.nodes.tolist() == [nodes]
    assert found.features is not None
    assert found.features[0, :, 3].tolist() == steps
    far = found.features[0, found.features[0, :, 3] > 0]
    torch.testing.assert_close(far[:, 4:], torch.tensor([[0.7, 1.0, 1.0]]).expand(len(far), 3))


def test_passages_that_share_an_entity_are_neighbours_too() -> None:
    """The seed a shares an entity with g and an edge with f; b shares one with c, but is no seed."""
    names = [["rome"], ["oslo"], ["oslo"], [], [], [], ["rome"]]
    graph = line([[0, 5]]).with_entities(EntityIncidence.from_names(names))
    found = HybridExpandRetriever(graph, top_k=4, base_k=2, num_seeds=1).retrieve(
        Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]]))
    )
    assert found.nodes.tolist() == [[0, 1, 5, 6]]
    assert found.features is not None
    assert found.features[0, :, 3].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("hops", [1, 2])
def test_no_edges_is_the_plain_hybrid_ranking(hops: int) -> None:
    graph = corpus().without_edges()
    found = HybridExpandRetriever(graph, top_k=12, base_k=6, num_seeds=4, hops=hops).retrieve(queries())
    plain = HybridRetriever(graph, top_k=12).retrieve(queries())
    assert found.features is not None
    assert plain.features is not None
    assert torch.equal(found.nodes, plain.nodes)
    assert torch.equal(found.scores, plain.scores)
    assert torch.equal(found.features[..., :3], plain.features)
    assert (found.features[..., 3:] == 0).all()


@pytest.mark.parametrize("hops", [1, 2])
def test_new_nodes_are_neighbours_and_base_order_stays(hops: int) -> None:
    graph = corpus(200, 300, seed=4)
    found = HybridExpandRetriever(graph, top_k=60, base_k=20, num_seeds=10, hops=hops).retrieve(queries())
    plain = HybridRetriever(graph, top_k=60).retrieve(queries())
    assert found.features is not None
    assert torch.equal(found.nodes[:, :20], plain.nodes[:, :20])
    assert found.base_nodes is not None
    assert torch.equal(found.base_nodes, plain.nodes)
    for row, steps, before in zip(found.nodes, found.features[..., 3], plain.nodes, strict=True):
        near = {n for seed in before[:10].tolist() for n in neighbours(graph, seed)}
        far = {n for node in near for n in neighbours(graph, node)}
        for node, step in zip(row.tolist(), steps.tolist(), strict=True):
            assert node in {0: set(before.tolist()), 1: near, 2: far}[step]
        assert len(set(row.tolist())) == 60


def test_small_corpus_is_padded() -> None:
    found = HybridExpandRetriever(corpus(5, 6), top_k=9, base_k=3, num_seeds=2).retrieve(queries())
    assert found.features is not None
    assert sorted(found.nodes[0, :5].tolist()) == [0, 1, 2, 3, 4]
    assert (found.nodes[:, 5:] == -1).all()
    assert (found.scores[:, 5:] == -torch.inf).all()
    assert (found.features[:, 5:] == 0).all()


def test_ties_break_by_node_number() -> None:
    graph = CorpusGraph.from_edges(list("abcdef"), ["fox"] * 6, torch.tensor([[0, 5], [0, 4], [0, 3]]))
    graph = graph.with_embedding(torch.eye(1, 3).expand(6, 3).contiguous())
    found = HybridExpandRetriever(graph, top_k=4, base_k=2, num_seeds=1).retrieve(
        Queries(["q"], ["fox"], torch.eye(1, 3))
    )
    assert found.nodes.tolist() == [[0, 1, 3, 4]]


def test_a_batch_equals_its_rows() -> None:
    asked = queries()
    retriever = HybridExpandRetriever(corpus(), top_k=15, base_k=6, num_seeds=4)
    whole = retriever.retrieve(asked)
    for row in range(len(asked)):
        one = retriever.retrieve(asked.block(row, row + 1))
        assert equal(one, whole.select(torch.tensor([row])))


@pytest.mark.parametrize("block_scores", [1, 45, 100])
def test_blocks_of_queries_give_the_same(block_scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = HybridExpandRetriever(corpus(), top_k=15, base_k=6, num_seeds=4)
    whole = retriever.retrieve(queries())
    monkeypatch.setattr(hybrid, "BLOCK_SCORES", block_scores)
    assert equal(retriever.retrieve(queries()), whole)


def test_no_queries() -> None:
    found = HybridExpandRetriever(corpus(), top_k=4, base_k=3, num_seeds=2).retrieve(Queries([], [], torch.zeros(0, 5)))
    assert found.features is not None
    assert (found.nodes.shape, found.features.shape) == ((0, 4), (0, 4, 7))
    assert found.nodes.dtype == torch.int64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 0}, "`top_k` must be a positive integer, got 0"),
        ({"top_k": 50}, r"`base_k` must lie in \[1, `top_k`\) = \[1, 50\), got 60; lower it or raise `top_k`"),
        ({"base_k": 0}, r"`base_k` must lie in \[1, `top_k`\) = \[1, 100\), got 0"),
        ({"num_seeds": 61}, r"`num_seeds` must lie in \[1, `base_k`\] = \[1, 60\], got 61"),
        ({"num_seeds": 0}, "`num_seeds` must lie in .* got 0"),
        ({"structure_weight": -0.5}, "`structure_weight` must not be negative, got -0.5"),
        ({"hops": 3}, "`hops` must be 1 or 2, got 3"),
        ({"dense_weight": -1.0}, "`bm25_weight` and `dense_weight` must not be negative"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HybridExpandRetriever(corpus(), **arguments)  # type: ignore[arg-type]


def test_corpus_without_vectors_is_refused() -> None:
    graph = CorpusGraph.from_edges(["a"], ["fox"], torch.zeros(0, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="`graph` must have an embedding"):
        HybridExpandRetriever(graph)


def test_config_holds_the_defaults() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        factory = instantiate(compose("retriever/hybrid_expand")["retriever"])
    assert isinstance(factory, partial)
    assert factory.func is HybridExpandRetriever
    defaults = HybridExpandRetriever.__init__.__kwdefaults__
    assert factory.keywords == defaults | {"quotas": dict.fromkeys(EDGE_TYPES, 0.2)}
