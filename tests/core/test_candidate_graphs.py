from dataclasses import replace
from itertools import product

import pytest
import torch

from graphrerank.core import CandidateGraphs
from graphrerank.core.model_inputs import PAIRS, SCORES, VECTORS
from graphrerank.corpus import CorpusGraph, EntityIncidence, candidate_edges, conceptual_edges
from graphrerank.corpus.edge_types import ENTITY

NUM_NODES = 30


def random_corpus(seed: int) -> CorpusGraph:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, NUM_NODES, (70, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    weight = torch.rand(len(edges), generator=generator) + 0.1
    ids = [f"n{i}" for i in range(NUM_NODES)]
    return CorpusGraph.from_edges(ids, ids, edges, weight)


@pytest.mark.parametrize(
    ("nodes", "ptr"),
    [([[5]], [0, 1]), ([[-1, -1]], [0, 0]), ([[-1], [3]], [0, 0, 1]), ([], [0]), ([[], []], [0, 0, 0])],
    ids=["one node", "padding alone", "an empty row first", "no rows", "no candidates"],
)
def test_no_edges(nodes: list[list[int]], ptr: list[int]) -> None:
    rows = torch.tensor(nodes, dtype=torch.int64).reshape(len(nodes), -1 if nodes and nodes[0] else 0)
    for corpus in (random_corpus(0), random_corpus(0).without_edges()):
        edge_index, weight, found_ptr = candidate_edges(corpus, rows)[:3]
        assert (edge_index.shape, weight.shape) == ((2, 0), (0,))
        assert found_ptr.tolist() == ptr
        with pytest.raises(ValueError, match="`nodes` must be unique per query, got 'n7' twice in row 1"):
            candidate_edges(corpus, torch.tensor([[7, 1, 2], [7, 3, 7]]))


def packed(sizes: list[int], nodes: list[int] | None = None) -> CandidateGraphs:
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    return CandidateGraphs(
        x=torch.rand(sum(sizes), 2),
        edge_index=torch.zeros(2, 0, dtype=torch.int64),
        edge_attr=torch.zeros(0),
        ptr=ptr,
        nodes=None if nodes is None else torch.tensor(nodes),
    )


@pytest.mark.parametrize("seed", range(4))
def test_order_against_naive_sort(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    sizes = [5, 0, 1, 8]
    nodes = [int(n) for size in sizes for n in torch.randperm(20, generator=generator)[:size]]
    scores = torch.randint(0, 3, (sum(sizes),), generator=generator).float()  # ties everywhere
    found = packed(sizes, nodes).order(scores)
    start = 0
    for row, size in zip(found.tolist(), sizes, strict=True):
        places = sorted(range(start, start + size), key=lambda place: (-float(scores[place]), nodes[place]))
        assert row == places + [-1] * (8 - size)
        start += size


def test_order_breaks_ties_by_place_where_there_is_no_corpus() -> None:
    assert packed([3]).order(torch.tensor([1.0, 2.0, 1.0])).tolist() == [[1, 0, 2]]
    with pytest.raises(ValueError, match="`scores` must not contain NaN"):
        packed([2]).order(torch.tensor([0.0, torch.nan]))


def test_to_padded_against_naive_loop() -> None:
    sizes = [2, 0, 4]
    numbers = torch.arange(6.0)
    found = packed(sizes).to_padded(numbers, fill=-9.0)
    assert found.tolist() == [[0, 1, -9, -9], [-9, -9, -9, -9], [2, 3, 4, 5]]
    assert packed(sizes).to_padded(numbers > 3, fill=False).tolist()[2] == [False, False, True, True]
    assert packed([0, 0]).to_padded(torch.zeros(0), fill=0.0).shape == (2, 0)
    assert packed([]).to_padded(torch.zeros(0), fill=0.0).shape == (0, 0)


def test_a_model_takes_the_tensors_that_it_names() -> None:
    graphs = replace(
        packed([2, 1], [4, 5, 6]),
        edge_type=torch.zeros(0, dtype=torch.int64),
        inputs={"pair_vectors": torch.ones(3, 4), "degree": torch.tensor([1, 0, 2])},
    )
    x, query_vectors, node_vectors, *_ = graphs.model_inputs(SCORES)
    assert (x.shape, query_vectors.shape, node_vectors.shape) == ((3, 2), (0, 0), (0, 0))  # stand in for absent ones
    assert graphs.model_inputs(SCORES.with_edge_types())[-1] is graphs.edge_type
    assert (SCORES.with_edge_types().reads_edge_types, SCORES.reads_edge_types) == (True, False)
    pair_vectors, edge_index, degree = graphs.model_inputs(PAIRS)
    assert (pair_vectors.shape, degree.tolist()) == ((3, 4), [1, 0, 2])
    assert edge_index is graphs.edge_index
    moved = graphs.to(torch.device("meta"))
    assert all(tensor.is_meta for tensor in (moved.x, moved.ptr, moved.nodes, *moved.inputs.values()))
    assert moved.relevance is None
    bare, typed = packed([2, 1]), SCORES.with_edge_types()
    for inputs, name in ((VECTORS, "query_vectors"), (PAIRS, "pair_vectors"), (typed, "edge_type")):
        with pytest.raises(ValueError, match=f"the model needs the input '{name}', but the batch only has"):
            bare.model_inputs(inputs)


@pytest.mark.parametrize("undirected", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_candidate_edges_against_a_loop(seed: int, undirected: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randint(0, 20, (120, 2), generator=generator)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    weight = torch.rand(len(pairs), generator=generator) + 0.1
    types = torch.randint(0, 3, (len(pairs),), generator=generator)  # some of the corpus's own edges are of entities
    names = [[str(i) for i in torch.randint(0, 8, (2,), generator=generator).tolist()] for _ in range(20)]
    incidence = EntityIncidence.from_names(names, max_share=1.0)
    ids = [str(i) for i in range(20)]
    bare = CorpusGraph.from_edges(ids, ids, pairs, weight, edge_type=types, undirected=undirected)
    nodes = torch.stack([torch.randperm(20, generator=generator)[:9] for _ in range(3)])
    nodes[1, 2:5] = -1
    packed, row = nodes[nodes >= 0].tolist(), torch.nonzero(nodes >= 0)[:, 0].tolist()
    expected: dict[tuple[int, int, int], float] = {}  # by target, source's place and type
    for target, source in product(range(len(packed)), repeat=2):
        for (a, b), number, kind in zip(pairs.tolist(), weight.tolist(), types.tolist(), strict=True):
            ends = (packed[target], packed[source])
            if row[target] == row[source] and (ends == (a, b) or (undirected and ends == (b, a))):
                key = (target, source, kind)
                expected[key] = max(expected.get(key, 0.0), number)
    assert len({key[:2] for key in expected}) < len(expected)  # pairs that are joined in several ways

    def listed(graph: CorpusGraph) -> list[tuple[tuple[int, int, int], float]]:
        edge_index, found, ptr, edge_type = candidate_edges(graph, nodes, keep_types=True)
        assert ptr.tolist() == [0, 9, 15, 24]
        keys = zip(edge_index[1].tolist(), edge_index[0].tolist(), edge_type.tolist(), strict=True)
        return list(zip(keys, found.tolist(), strict=True))

    def in_order(edges: dict[tuple[int, int, int], float]) -> list[tuple[tuple[int, int, int], float]]:
        return sorted(edges.items(), key=lambda edge: (edge[0][0], packed[edge[0][1]], edge[0][2]))

    assert listed(bare) == in_order(expected)
    shared_index, shared, _ = conceptual_edges(incidence, nodes)
    for source, target, number in zip(*shared_index.tolist(), shared.tolist(), strict=True):
        key = (target, source, ENTITY)
        expected[key] = max(expected.get(key, 0.0), number)
    joined = bare.with_entities(incidence)
    assert listed(joined) == in_order(expected)
    merged_index, merged, _, _ = candidate_edges(joined, nodes)
    largest: dict[tuple[int, int], float] = {}
    for (target, origin, _), number in in_order(expected):
        largest[origin, target] = max(largest.get((origin, target), 0.0), number)
    assert list(zip(zip(*merged_index.tolist(), strict=True), merged.tolist(), strict=True)) == list(largest.items())


def test_some_edges_are_selected_with_their_weights_and_types() -> None:
    whole = replace(
        packed([4]), edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), edge_attr=torch.tensor([1.0, 2.0, 3.0])
    )
    for kept in (torch.tensor([True, False, True]), torch.tensor([0, 2])):
        part = replace(whole, edge_type=torch.tensor([4, 0, 1])).select_edges(kept)
        assert part.edge_index.tolist() == [[0, 2], [1, 3]]
        assert part.edge_attr.tolist() == [1.0, 3.0]
        assert part.edge_type.tolist() == [4, 1]
        assert whole.select_edges(kept).edge_type is None
