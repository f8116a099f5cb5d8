import pytest
import torch

from graphrerank.graphs import CorpusGraph, EntityIncidence
from graphrerank.graphs.edge_types import ADJACENCY, ENTITY, OTHER, REFERENCE, SIMILARITY
from graphrerank.operators.entity_ppr import corpus_entities
from graphrerank.operators.expander import Expander, share_places

COSINES = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
EDGES = {  # of node 0, the seed
    REFERENCE: [9, 8],
    ENTITY: [7, 9],
    SIMILARITY: [2, 3, 4, 5],
}


def typed_graph() -> CorpusGraph:
    """Ten nodes of falling cosine to the query (1, 0); the seed's references are the least similar nodes."""
    cosine = torch.tensor(COSINES)
    pairs = [[0, node] for nodes in EDGES.values() for node in nodes]
    types = torch.tensor([edge_type for edge_type, nodes in EDGES.items() for _ in nodes])
    graph = CorpusGraph.from_edges(list("abcdefghij"), [""] * 10, torch.tensor(pairs), edge_type=types)
    return graph.with_embedding(torch.stack([cosine, (1 - cosine**2).sqrt()], dim=1))


def expand(
    graph: CorpusGraph, room: int, quotas: dict[str, float] | None, num_seeds: int = 1
) -> dict[int, list[float]]:
    """Expand the ranking 0, 1, ... of all nodes: the neighbours chosen, with their features."""
    base_k = num_seeds + 1
    expander = Expander(
        graph,
        top_k=base_k + room,
        base_k=base_k,
        num_seeds=num_seeds,
        similarity_weight=1.0,
        structure_weight=1.0,
        hops=1,
        quotas=quotas,
    )
    nodes = torch.arange(base_k + room)[None]
    candidates, features = expander.expand(nodes, 1 - nodes / 10, torch.tensor([[1.0, 0.0]]))
    chosen = zip(candidates[0].tolist(), features[0].tolist(), strict=True)
    return {node: walk for node, walk in chosen if walk[0]}


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
    assert sorted(expand(typed_graph(), 4, quotas)) == chosen


def test_features_are_of_edges_of_all_types() -> None:
    """Node 9 is joined with seed 0 by a reference and an entity, and with seed 1 by similarity."""
    graph = typed_graph().with_edges(torch.tensor([[1, 9]]), torch.ones(1), edge_type=SIMILARITY)
    found = expand(graph, 4, {"reference": 0.5}, num_seeds=2)
    torch.testing.assert_close(torch.tensor(found[9]), torch.tensor([1.0, 1.0, 1.0, 1.0]))
    torch.testing.assert_close(torch.tensor(found[8]), torch.tensor([1.0, 1.0, 1.0, 0.5]))


@pytest.mark.parametrize("edge_type", [REFERENCE, ENTITY, ADJACENCY, OTHER])
def test_where_all_edges_are_of_one_type_quotas_change_nothing(edge_type: int) -> None:
    generator = torch.Generator().manual_seed(edge_type)
    edges = torch.randint(0, 40, (90, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = CorpusGraph.from_edges([f"n{i}" for i in range(40)], [""] * 40, edges, edge_type=edge_type)
    graph = graph.with_embedding(torch.randn(40, 2, generator=generator))
    expected = expand(graph, 9, None, num_seeds=5)
    assert len(expected) == 9
    assert expand(graph, 9, {"reference": 0.5, "similarity": 0.2}, num_seeds=5) == expected


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
    settings = {"similarity_weight": 1.0, "structure_weight": 1.0, "hops": 1}
    expander = Expander(
        graph,
        top_k=6,
        base_k=2,
        num_seeds=1,
        pagerank_share=pagerank_share,
        quotas=quotas,
        **settings,  # type: ignore[arg-type]
    )
    nodes = torch.arange(6)[None]
    candidates, features = expander.expand(nodes, 1 - nodes / 10, torch.tensor([[1.0, 0.0]]))
    found = {node: walk for node, walk in zip(candidates[0].tolist(), features[0].tolist(), strict=True) if node >= 0}
    assert sorted(found) == [0, 1, *chosen]
    for node in chosen:
        assert found[node] == ([0.0] * 4 if node == 6 else [1.0] * 4)


def test_the_corpus_entities_are_taken_where_it_has_some() -> None:
    incidence = EntityIncidence.from_names([["metz"], ["metz"], []])
    graph = CorpusGraph.from_edges(list("abc"), ["Rome", "", "Rome"], torch.zeros(0, 2))
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
    ("quotas", "message"),
    [
        ({"links": 0.5}, "`quotas` must be of .* got 'links'"),
        ({"entity": -0.1}, "`quotas` must not be negative, nor above 1 together, got {'entity': -0.1}"),
        ({"entity": 0.6, "reference": 0.5}, "`quotas` must not be negative, nor above 1 together"),
    ],
)
def test_quotas_out_of_range_are_refused(quotas: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        expand(typed_graph(), 4, quotas)


def test_pagerank_share_out_of_range_is_refused() -> None:
    settings = {"top_k": 4, "base_k": 2, "num_seeds": 1, "similarity_weight": 1.0, "structure_weight": 1.0}
    with pytest.raises(ValueError, match=r"`pagerank_share` must lie in \[0, 1\], got 1.5"):
        Expander(typed_graph(), hops=1, pagerank_share=1.5, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`hops` must be 1 with `pagerank_share`, got 2"):
        Expander(typed_graph(), hops=2, pagerank_share=0.5, **settings)  # type: ignore[arg-type]


def test_quotas_are_of_one_hop() -> None:
    settings = {"top_k": 4, "base_k": 2, "num_seeds": 1, "similarity_weight": 1.0, "structure_weight": 1.0}
    with pytest.raises(ValueError, match=r"`hops` must be 1 with `quotas` .*, got 2"):
        Expander(typed_graph(), hops=2, quotas={}, **settings)  # type: ignore[arg-type]
