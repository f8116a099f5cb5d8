import pytest
import torch

from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws, TypeAugmentation
from graphrerank.graphs import CandidateGraphs
from graphrerank.graphs.edge_types import EDGE_TYPES, OTHER

SIZE, QUERIES = 6, 300


@pytest.fixture(scope="module")
def graphs() -> CandidateGraphs:
    """Many queries of six candidates, joined by edges of three types; some pairs in two ways."""
    one_way = torch.tensor([[0, 1, 2, 3, 0, 1, 4, 0], [1, 2, 3, 4, 1, 4, 5, 5]])
    kinds = torch.tensor([0, 0, 0, 1, 1, 1, 3, 3]).repeat(2)
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    edge_index = torch.cat([both + SIZE * query for query in range(QUERIES)], dim=1)
    edge_type = kinds.repeat(QUERIES)
    weight = torch.rand(len(edge_type), generator=torch.Generator().manual_seed(0)) + 0.1
    x = torch.rand(SIZE * QUERIES, 2)
    ptr = torch.arange(0, SIZE * QUERIES + 1, SIZE)
    return CandidateGraphs(x, edge_index, weight, ptr, edge_type=edge_type)


def changed(graphs: CandidateGraphs, seed: int = 0, **probabilities: float) -> CandidateGraphs:
    return TypeAugmentation(**probabilities)(graphs, QueryDraws(torch.Generator().manual_seed(seed), graphs.num_graphs))


def edges_of(graphs: CandidateGraphs, query: int) -> dict[tuple[int, int, int], float]:
    assert graphs.edge_type is not None
    own = graphs.edge_index[1] // SIZE == query
    columns = (*(graphs.edge_index[:, own] - SIZE * query).tolist(), graphs.edge_type[own].tolist())
    keys = list(zip(*columns, strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, graphs.edge_attr[own].tolist(), strict=True))


def test_changes_nothing_by_default(graphs: CandidateGraphs) -> None:
    assert changed(graphs) is graphs


def test_all_types_of_a_query_are_merged(graphs: CandidateGraphs) -> None:
    after, count = changed(graphs, type_merge=0.4), 0
    for query in range(QUERIES):
        before, found = edges_of(graphs, query), edges_of(after, query)
        expected: dict[tuple[int, int, int], float] = {}
        for (source, target, _), weight in before.items():
            expected[source, target, OTHER] = max(weight, expected.get((source, target, OTHER), 0.0))
        assert found in (before, expected)
        count += found == expected
    assert abs(count / QUERIES - 0.4) < 0.1


def test_types_trade_places_within_a_query(graphs: CandidateGraphs) -> None:
    after, orders = changed(graphs, type_swap=0.5), set()
    for query in range(QUERIES):
        before, found = edges_of(graphs, query), edges_of(after, query)
        of_pair = {}
        for (source, target, kind), weight in before.items():
            same = [t for (s, e, t), w in found.items() if (s, e, w) == (source, target, weight)]
            assert len(same) == 1
            assert of_pair.setdefault(kind, same[0]) == same[0]
        assert len(found) == len(before)
        assert len(set(of_pair.values())) == 3  # two types never become one
        orders.add(tuple(sorted(of_pair.items())))
    assert len(orders) > 30


def test_the_edges_of_a_type_are_hidden(graphs: CandidateGraphs) -> None:
    after, left = changed(graphs, type_dropout=0.3), torch.zeros(len(EDGE_TYPES))
    for query in range(QUERIES):
        before, found = edges_of(graphs, query), edges_of(after, query)
        kinds = {kind for _, _, kind in found}
        assert found == {key: weight for key, weight in before.items() if key[2] in kinds}
        left[list(kinds)] += 1
    assert left[[2, 4]].tolist() == [0, 0]  # were never there
    assert ((left[[0, 1, 3]] / QUERIES - 0.7).abs() < 0.1).all()


def test_draws_depend_on_the_generator_alone(graphs: CandidateGraphs) -> None:
    draws = {"type_merge": 0.3, "type_swap": 0.5, "type_dropout": 0.2}
    first, again, other = (changed(graphs, seed, **draws) for seed in (1, 1, 2))
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.edge_type, again.edge_type)
    assert first.edge_index.shape != other.edge_index.shape
    assert first.x is graphs.x


def test_all_edges_of_a_query_are_dropped_before(graphs: CandidateGraphs) -> None:
    augmentation = CandidateAugmentation(["base_score", "bm25_score"], edge_dropout=0.5, type_merge=1.0)
    after = augmentation(graphs, QueryDraws(torch.Generator().manual_seed(0), graphs.num_graphs))
    assert (after.edge_type == OTHER).all()
    left = len(torch.unique(after.edge_index[1] // SIZE))
    assert abs(left / QUERIES - 0.5) < 0.1


def test_merged_edges_and_other_probabilities_are_refused(graphs: CandidateGraphs) -> None:
    merged = CandidateGraphs(graphs.x, graphs.edge_index, graphs.edge_attr, graphs.ptr)
    with pytest.raises(ValueError, match="need edges that keep their type: a model of `num_edge_types`"):
        changed(merged, type_swap=0.1)
    with pytest.raises(ValueError, match=r"`type_swap` must lie in \[0, 1\], got 1.5"):
        TypeAugmentation(type_swap=1.5)
