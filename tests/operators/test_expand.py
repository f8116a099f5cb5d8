from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Queries, Ranking
from graphrerank.core.adapters import needs_vectors
from graphrerank.core.retriever import Retriever
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_types import ADJACENCY, ENTITY, OTHER, REFERENCE, SIMILARITY
from graphrerank.data.run_retriever import RunRetriever
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.expand import Expander, ExpandRetriever, HybridExpandRetriever, share_places
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.ppr import corpus_entities
from graphrerank.utils.checks import UserError
from tests.operators.corpora import corpus, corpus_of, queries, queries_of, random_edges
from tests.operators.test_stex import algorithm_3, neighbour_sets

FOX = Queries(["q"], ["fox"], torch.tensor([[1.0, 0.0]]))


def expected_row(
    graph: CorpusGraph, scores: dict[int, list[float]], top_k: int, base_k: int, num_seeds: int, structure_weight: float
) -> dict[int, list[float]]:
    """Features of one query's candidates, in order of the ranking, from all nodes' hybrid, BM25 and dense scores."""
    order = sorted(scores, key=lambda n: (-round(scores[n][0], 6), n))
    seeds, base = order[:num_seeds], order[:base_k]
    chosen = {node: [0.0, 0.0, 0.0, 0.0] for node in base}
    vectors, near = torch.tensor([[scores[node][2]] for node in range(graph.num_nodes)]), neighbour_sets(graph)
    facts = algorithm_3(torch.ones(1), vectors, near, seeds, structure_weight, set(base))
    for node in sorted(facts, key=lambda n: (-round(facts[n]["scores"], 6), n))[: top_k - base_k]:
        rank, reached = int(facts[node]["best_seed_rank"]), facts[node]["seeds_reached"]
        chosen[node] = [1.0, scores[seeds[rank - 1]][0], 1 / rank, reached / num_seeds]
    for node in order:
        if len(chosen) < top_k:
            chosen.setdefault(node, [0.0, 0.0, 0.0, 0.0])
    return {node: [*scores[node], *chosen[node]] for node in order if node in chosen}


@pytest.mark.parametrize(
    "settings",
    [(12, 6, 4, 0.5), (20, 5, 5, 0.0), (8, 7, 1, 1.0), (15, 10, 10, 3.0), (40, 30, 3, 0.5), (2, 1, 1, 0.5)],
)
@pytest.mark.parametrize("seed", range(3))
def test_against_naive_loop(seed: int, settings: tuple[int, int, int, float]) -> None:
    graph, asked = corpus(seed=seed), queries(seed=seed)
    names = ("top_k", "base_k", "num_seeds", "structure_weight")
    found = HybridExpandRetriever(graph, **dict(zip(names, settings, strict=True))).retrieve(asked)
    every = HybridRetriever(graph, top_k=graph.num_nodes).retrieve(asked)
    for row in range(len(asked)):
        scores = dict(zip(every.nodes[row].tolist(), every.features[row].tolist(), strict=True))
        expected = expected_row(graph, scores, *settings)
        assert found.nodes[row].tolist() == list(expected)
        torch.testing.assert_close(found.features[row], torch.tensor(list(expected.values())), atol=1e-5, rtol=0)
        assert torch.equal(found.scores[row], found.features[row, :, 0])


@pytest.mark.parametrize("tail_bonus", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("quotas", [None, {"other": 1.0}])
def test_competing_neighbours_against_naive_loop(tail_bonus: float, quotas: dict[str, float] | None) -> None:
    top_k, base_k, num_seeds = 14, 6, 4
    graph, asked = corpus(seed=1), queries(seed=1)
    if quotas is not None:  # edges with a type are chosen by quotas first
        edges = torch.tensor([[a, b] for a, near in enumerate(neighbour_sets(graph)) for b in near if a < b])
        typed = CorpusGraph.from_edges(graph.node_ids, graph.texts, edges, edge_type=OTHER)
        graph = typed.with_embedding(graph.embedding)
    settings = {"top_k": top_k, "base_k": base_k, "num_seeds": num_seeds, "quotas": quotas}
    found = HybridExpandRetriever(graph, **settings, tail_bonus=tail_bonus).retrieve(asked)
    every = HybridRetriever(graph, top_k=graph.num_nodes).retrieve(asked)
    near, num_lost = neighbour_sets(graph), 0
    for row in range(len(asked)):
        scores = dict(zip(every.nodes[row].tolist(), every.features[row].tolist(), strict=True))
        order = sorted(scores, key=lambda n: (-round(scores[n][0], 6), n))
        base, rest = order[:base_k], order[base_k:top_k]
        vectors = torch.tensor([[scores[node][2]] for node in range(graph.num_nodes)])
        facts = algorithm_3(torch.ones(1), vectors, near, order[:num_seeds], 1.0, set(base))
        best = sorted(facts, key=lambda n: (-round(facts[n]["scores"], 6), n))[: top_k - base_k]
        links = {n: 1 / facts[n]["best_seed_rank"] + (facts[n]["seeds_reached"] - 1) / num_seeds for n in best}
        pool = {node: scores[node][0] + tail_bonus * links[node] for node in best}
        pool |= {node: scores[node][0] for node in rest if node not in best}
        winners = sorted(pool, key=lambda n: -pool[n])[: top_k - base_k]
        assert set(found.nodes[row].tolist()) == {*base, *winners}
        num_lost += len(set(best) - set(winners))
        is_neighbour = found.features[row, :, 3] > 0
        assert set(found.nodes[row][is_neighbour].tolist()) == set(best) & set(winners)
    assert num_lost > 0


def test_neighbours_do_not_evict_better_passages_by_hand() -> None:
    """Seed 0 has rank 1, so the links of its neighbour 6 count 1, and its cosine is -0.2."""
    graph = line([[0, 6]])
    settings = {"top_k": 4, "base_k": 3, "num_seeds": 2, "bm25_weight": 0.0, "dense_weight": 1.0}

    def nodes(tail_bonus: float | None) -> list[int]:
        return HybridExpandRetriever(graph, **settings, tail_bonus=tail_bonus).retrieve(FOX).nodes[0].tolist()

    assert nodes(None) == nodes(0.7) == [0, 1, 2, 6]
    assert nodes(0.5) == nodes(0.0) == [0, 1, 2, 3]  # 3 has a cosine of 0.4


def line(edges: list[list[int]]) -> CorpusGraph:
    """Seven nodes with cosines 1.0, 0.8, 0.6, 0.4, 0.2, 0.0 and -0.2 to FOX; the third holds its word."""
    cosine = torch.tensor([1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.2])
    vectors = torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1)
    texts = ["dog", "dog", "fox", "dog", "dog", "dog", "dog"]
    return corpus_of(texts, vectors, torch.tensor(edges).reshape(-1, 2).long())


@pytest.mark.parametrize(
    ("edges", "settings", "nodes", "hops"),
    [
        ([], {"top_k": 4, "hops": 2}, [0, 1, 2, 3], [0, 0, 0, 0]),  # the plain ranking
        ([[0, 6]], {"top_k": 5}, [0, 1, 2, 3, 6], [0, 0, 0, 0, 1]),  # too few: filled from the hybrid ranking
        ([[0, 2]], {"top_k": 4}, [0, 1, 2, 3], [0, 0, 1, 0]),  # one that the longer ranking holds comes once
        ([[0, 5], [5, 4], [4, 6]], {"top_k": 3, "base_k": 1, "num_seeds": 1}, [0, 1, 5], [0, 0, 1]),
        ([[0, 5], [5, 4], [4, 6]], {"top_k": 3, "base_k": 1, "num_seeds": 1, "hops": 2}, [0, 4, 5], [0, 2, 1]),
    ],
)
def test_neighbours_of_one_hop_or_two_and_filling(
    edges: list[list[int]], settings: dict[str, int], nodes: list[int], hops: list[int]
) -> None:
    retriever = HybridExpandRetriever(line(edges), **{"base_k": 2, "num_seeds": 2, **settings}, bm25_weight=0.0)
    found = retriever.retrieve(FOX)
    assert found.nodes.tolist() == [nodes]
    assert found.features[0, :, 3].tolist() == hops


class Fixed:
    """Gives every query one list of nodes, with falling scores and a feature of its own."""

    feature_names: tuple[str, ...] = ("base_score", "own")

    def __init__(self, graph: CorpusGraph, *, top_k: int, nodes: tuple[int, ...], score: float = 9.0) -> None:
        row = [*nodes[:top_k], *[-1] * (top_k - len(nodes))]
        self.nodes = torch.tensor(row)
        self.scores = torch.tensor([score - i if node >= 0 else -torch.inf for i, node in enumerate(row)])

    def retrieve(self, queries: Queries) -> Ranking:
        features = torch.stack([self.scores, 2 * self.scores], dim=-1).masked_fill(self.nodes[:, None] < 0, 0.0)
        shape = (len(queries), len(self.nodes))
        return Ranking(self.nodes.expand(shape), self.scores.expand(shape), features.expand(*shape, 2))


def test_features_over_another_ranking_by_hand() -> None:
    """The base ranking is d, a, e; d is the only seed, its neighbours are a (in the base), e (listed third), c, g."""
    graph = line([[3, 0], [3, 4], [3, 2], [3, 6]])
    build = partial(Fixed, nodes=(3, 0, 4))
    retriever = ExpandRetriever(graph, base=build, top_k=5, base_k=2, num_seeds=1)
    found = retriever.retrieve(FOX)
    assert retriever.feature_names == (
        "base_score", "own", "bm25_score", "dense_score", "hops", "best_seed_score", "best_seed_reciprocal_rank",
        "seeds_reached",
    )  # fmt: skip
    below = float(torch.nextafter(torch.tensor(7.0), torch.tensor(0.0)))
    expected = [
        [9.0, 18.0, 0.0, 0.4, 0.0, 0.0, 0.0, 0.0],
        [8.0, 16.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0],  # a neighbour too, but found by the base ranking
        [7.0, 14.0, 0.0, 0.2, 1.0, 9.0, 1.0, 1.0],  # a neighbour that the base ranking lists further down
        [below, 14.0, 1.0, 0.6, 1.0, 9.0, 1.0, 1.0],  # not listed: behind the list
        [below, 14.0, 0.0, -0.2, 1.0, 9.0, 1.0, 1.0],
    ]
    assert found.nodes.tolist() == [[3, 0, 4, 2, 6]]
    torch.testing.assert_close(found.features, torch.tensor([expected]))
    assert torch.equal(found.scores, found.features[..., 0])
    assert found.scores[0, 3] < 7.0
    assert found.base_nodes.tolist() == [[3, 0, 4, -1, -1]]


def test_without_vectors_neighbours_are_ranked_by_the_graph() -> None:
    """Of the seeds d and a, e is reached by both; with vectors c, the likest, would come first."""
    encoded = line([[3, 2], [3, 4], [0, 4], [3, 6]])
    graph, bare_query = replace(encoded, vectors=None), queries_of(["fox"])
    build = partial(ExpandRetriever, base=partial(Fixed, nodes=(3, 0)), top_k=3, base_k=2, num_seeds=2)
    retriever = build(graph, similarity_weight=0)
    assert retriever.retrieve(bare_query).nodes.tolist() == [[3, 0, 4]]
    assert retriever.feature_names[2:4] == ("bm25_score", "hops")
    assert build(encoded, structure_weight=0).retrieve(FOX).nodes.tolist() == [[3, 0, 2]]
    with pytest.raises(ValueError, match=r"Choose an encoder .* or .*similarity_weight=0 of ExpandRetriever"):
        build(graph)
    with pytest.raises(ValueError, match="`queries` must have vectors"):
        build(encoded, similarity_weight=0).retrieve(bare_query)


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize("seed", range(3))
def test_against_the_hybrid_one_on_the_whole_ranking(seed: int, hops: int) -> None:
    """Over a base ranking that lists every node, candidates and features are HybridExpandRetriever's."""
    graph = corpus(seed=seed)

    class Whole(HybridRetriever):
        def __init__(self, graph: CorpusGraph, *, top_k: int) -> None:
            super().__init__(graph, top_k=graph.num_nodes)

    settings = {"base_k": 8, "num_seeds": 5, "hops": hops}
    expected = HybridExpandRetriever(graph, top_k=20, **settings).retrieve(queries())
    retriever = ExpandRetriever(graph, base=Whole, top_k=20, **settings)
    assert retriever.feature_names == HybridExpandRetriever.feature_names
    assert retriever.feature_names[:3] == ("base_score", "bm25_score", "dense_score")
    found = retriever.retrieve(queries())
    assert torch.equal(found.nodes, expected.nodes)
    torch.testing.assert_close(found.features, expected.features)


@pytest.mark.parametrize(
    "build",
    [
        BM25Retriever,
        HybridRetriever,
        HybridExpandRetriever,
        partial(ExpandRetriever, base=partial(Fixed, nodes=()), similarity_weight=0.0),
        partial(ExpandRetriever, base=BM25Retriever, similarity_weight=0.0),
    ],
)
def test_a_corpus_without_passages_is_refused(build: Callable[..., Retriever]) -> None:
    empty = corpus_of([], torch.zeros(0, 5), torch.zeros(0, 2, dtype=torch.int64))
    with pytest.raises(UserError, match="`graph` must contain at least one passage"):
        build(empty).retrieve(queries(2))


def test_a_query_without_candidates() -> None:
    retriever = ExpandRetriever(corpus(), base=partial(Fixed, nodes=()), top_k=5, base_k=3, num_seeds=2)
    found = retriever.retrieve(queries(2))
    assert (found.nodes == -1).all()
    assert (found.scores == -torch.inf).all()
    assert (found.features == 0).all()


def test_vectors_are_needed_and_fingerprints_are_as_of_the_base_retriever(tmp_path: Path) -> None:
    (tmp_path / "run.trec").write_text("q Q0 n1 1 1 x\n")
    run = partial(RunRetriever, path=tmp_path / "run.trec")
    assert not needs_vectors(partial(ExpandRetriever, base=run, similarity_weight=0))
    assert needs_vectors(partial(ExpandRetriever, base=run))
    assert needs_vectors(partial(ExpandRetriever, base=partial(HybridRetriever), similarity_weight=0))
    assert needs_vectors(HybridRetriever)
    assert ExpandRetriever(corpus(), base=run).fingerprint == run(corpus()).fingerprint != ""
    assert ExpandRetriever(corpus(), base=partial(Fixed, nodes=(1,))).fingerprint == ""


COSINES = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
EDGES = {REFERENCE: [9, 8], ENTITY: [7, 9], SIMILARITY: [2, 3, 4, 5]}  # of node 0, the seed


def typed_graph() -> CorpusGraph:
    """Ten nodes of falling cosine to the query (1, 0); the seed's references are the least similar nodes."""
    cosine = torch.tensor(COSINES)
    pairs = [[0, node] for nodes in EDGES.values() for node in nodes]
    types = torch.tensor([edge_type for edge_type, nodes in EDGES.items() for _ in nodes])
    graph = CorpusGraph.from_edges(list("abcdefghij"), [""] * 10, torch.tensor(pairs), edge_type=types)
    return graph.with_embedding(torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1))


def expanded(graph: CorpusGraph, room: int, num_seeds: int = 1, **settings: Any) -> dict[int, list[float]]:
    """Expand the ranking 0, 1, ... of all nodes: the candidates, with the features of the walk."""
    base_k = num_seeds + 1
    expander = Expander(graph, top_k=base_k + room, base_k=base_k, num_seeds=num_seeds, **settings)
    nodes = torch.arange(base_k + room)[None]
    candidates, features = expander.candidates(Ranking(nodes, 1 - nodes / 10), torch.tensor([[1.0, 0.0]]))
    chosen = zip(candidates[0].tolist(), features[0].tolist(), strict=True)
    return {node: walk for node, walk in chosen if node >= 0}


def neighbours_of(graph: CorpusGraph, room: int, num_seeds: int = 1, **settings: Any) -> dict[int, list[float]]:
    return {node: walk for node, walk in expanded(graph, room, num_seeds, **settings).items() if walk[0]}


@pytest.mark.parametrize(
    ("quotas", "chosen"),
    [
        (None, [2, 3, 4, 5]),  # by similarity alone, as all are neighbours of the one seed
        ({"reference": 0.5}, [2, 7, 8, 9]),  # references, then entities (9 has a place), then similarity
        ({"reference": 0.25, "similarity": 0.5}, [2, 3, 8, 9]),  # the fourth place: references come first
        ({"entity": 0.25, "similarity": 0.75}, [2, 3, 4, 7]),
        ({"adjacency": 1.0}, [2, 7, 8, 9]),  # no such edge: all is left free
        ({}, [2, 7, 8, 9]),
    ],
)
def test_each_type_has_its_share(quotas: dict[str, float] | None, chosen: list[int]) -> None:
    assert sorted(neighbours_of(typed_graph(), 4, quotas=quotas)) == chosen


def test_features_are_of_edges_of_all_types() -> None:
    """Node 9 is joined with seed 0 by a reference and an entity, and with seed 1 by similarity."""
    graph = typed_graph().with_edges(torch.tensor([[1, 9]]), torch.ones(1), edge_type=SIMILARITY)
    found = neighbours_of(graph, 4, quotas={"reference": 0.5}, num_seeds=2)
    torch.testing.assert_close(torch.tensor(found[9]), torch.tensor([1.0, 1.0, 1.0, 1.0]))
    torch.testing.assert_close(torch.tensor(found[8]), torch.tensor([1.0, 1.0, 1.0, 0.5]))


@pytest.mark.parametrize("edge_type", [REFERENCE, ENTITY, ADJACENCY, OTHER])
def test_where_all_edges_are_of_one_type_quotas_change_nothing(edge_type: int) -> None:
    generator = torch.Generator().manual_seed(edge_type)
    edges = random_edges(40, 90, generator)
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(40)], [""] * 40, edges, edge_type=edge_type)
    graph = graph.with_embedding(torch.randn(40, 2, generator=generator))
    expected = neighbours_of(graph, 9, quotas=None, num_seeds=5)
    assert len(expected) == 9
    assert neighbours_of(graph, 9, quotas={"reference": 0.5, "similarity": 0.2}, num_seeds=5) == expected


@pytest.mark.parametrize(
    ("pagerank_share", "quotas", "chosen"),
    [
        (0.0, None, [2, 3, 4, 5]),
        (0.25, None, [2, 3, 4, 6]),  # 6 shares an entity with the seed, and no edge
        (1.0, None, [2, 3, 4, 6]),  # entities lead to no other: neighbours take what is left free
        (0.5, {"reference": 1.0}, [6, 7, 8, 9]),
    ],
)
def test_passages_by_pagerank_over_spelled_names(
    pagerank_share: float, quotas: dict[str, float] | None, chosen: list[int]
) -> None:
    texts = ["In Metz.", "", "", "", "", "", "To Metz.", "", "Oslo.", "From Oslo."]
    graph = typed_graph().with_passages(texts=texts)
    found = expanded(graph, 4, pagerank_share=pagerank_share, quotas=quotas)
    assert sorted(found) == [0, 1, *chosen]
    for node in chosen:
        assert found[node] == ([0.0] * 4 if node == 6 else [1.0] * 4)


def test_the_corpus_entities_are_taken_where_it_has_some() -> None:
    incidence = EntityIncidence.from_names([["metz"], ["metz"], []])
    graph = corpus_of(["Rome", "", "Rome"])
    assert corpus_entities(graph.with_entities(incidence)) is incidence
    assert corpus_entities(graph).names == ["rome"]
    assert corpus_entities(graph).indices.tolist() == [0, 0]


@pytest.mark.parametrize("seed", range(5))
def test_share_places_against_naive_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lists = [torch.stack([torch.randperm(12, generator=generator)[:5] for _ in range(8)]) for _ in range(3)]
    lists[0][:, 2:] = -1
    lists[2][3] = -1
    places = [3, 1, 2]
    found = share_places(lists, places, 7)
    for row in range(8):
        queues = [[node for node in nodes[row].tolist() if node >= 0] for nodes in lists]
        chosen: list[int] = []
        for queue, count in zip(queues, places, strict=True):
            chosen += [node for node in queue[:count] if node not in chosen]
        for queue, count in zip(queues, places, strict=True):
            chosen += [node for node in queue[count:] if node not in chosen]
        assert [node for node in found[row].tolist() if node >= 0] == chosen[:7]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"top_k": 50}, r"`base_k` must be at least 1 and below `top_k` = 50, got 60\. Lower it or raise `top_k`"),
        ({"num_seeds": 61}, r"`num_seeds` must be from 1 to `base_k` = 60, got 61"),
        ({"structure_weight": -0.5}, "`structure_weight` must not be negative, got -0.5"),
        ({"hops": 3}, "`hops` must be 1 or 2, got 3"),
        ({"quotas": {"links": 0.5}}, "`quotas` must be one of .* got 'links'"),
        ({"quotas": {"entity": -0.1}}, "`quotas` must be at least 0 and sum to at most 1, got {'entity': -0.1}"),
        ({"pagerank_share": 1.5}, r"`pagerank_share` must lie in \[0, 1\], got 1.5"),
        ({"pagerank_share": 0.5, "hops": 2}, r"`hops` must be 1 if .*`pagerank_share` is set, got 2"),
        ({"quotas": {}, "hops": 2}, r"`hops` must be 1 if `quotas` .*, got 2"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expander(corpus(), **arguments)


def test_arguments_of_each_retriever_are_checked() -> None:
    class Walked(Fixed):
        feature_names = ("base_score", "hops")

    with pytest.raises(
        ValueError, match=r"the features of `base` must not be named like those of the expansion, got \['hops'\]"
    ):
        ExpandRetriever(line([]), base=partial(Walked, nodes=(0, 1)), top_k=3, base_k=2, num_seeds=1)
    with pytest.raises(ValueError, match=r"`similarity_weight` must not be negative, got -1\.0"):
        ExpandRetriever(corpus(), base=partial(Fixed, nodes=(0,)), similarity_weight=-1.0)
