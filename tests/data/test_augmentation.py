from collections.abc import Sequence

import pytest
import torch

from graphrerank.core import CandidateGraphs
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.corpus.edge_types import EDGE_TYPES, OTHER
from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws

NAMES = ("base_score", "bm25_score", "dense_score", "hops", "seeds_reached", "own")
NAMES = (*NAMES, "query_coverage", "neighbourhood_coverage")
SIZE, QUERIES = 4, 400


@pytest.fixture
def graphs() -> CandidateGraphs:
    """Many queries of four candidates on a path; no score is 0."""
    x = torch.rand(SIZE * QUERIES, len(NAMES), generator=torch.Generator().manual_seed(0)) + 0.1
    path = torch.tensor([[1, 0, 2, 1, 3, 2], [0, 1, 1, 2, 2, 3]])
    edges = torch.cat([path + SIZE * query for query in range(QUERIES)], dim=1)
    return CandidateGraphs(x, edges, torch.ones(edges.shape[1]), torch.arange(0, SIZE * QUERIES + 1, SIZE))


def changed(
    graphs: CandidateGraphs, seed: int = 0, names: Sequence[str] = NAMES, **probabilities: float
) -> CandidateGraphs:
    draws = QueryDraws(torch.Generator().manual_seed(seed), graphs.num_graphs)
    return CandidateAugmentation(names, **probabilities)(graphs, draws)


def test_base_score_is_swapped_for_whole_queries(graphs: CandidateGraphs) -> None:
    same = changed(graphs)
    assert torch.equal(same.x, graphs.x)
    assert torch.equal(same.edge_index, graphs.edge_index)
    before, after = (g.x.reshape(QUERIES, SIZE, -1) for g in (graphs, changed(graphs, base_swap=0.6)))
    assert torch.equal(before[..., 1:], after[..., 1:])
    is_kept, is_bm25, is_dense = ((after[..., 0] == before[..., column]).all(1) for column in (0, 1, 2))
    assert (is_kept.int() + is_bm25.int() + is_dense.int() == 1).all()
    for share, expected in ((is_kept, 0.4), (is_bm25, 0.3), (is_dense, 0.3)):
        assert abs(float(share.float().mean()) - expected) < 0.08


def test_scores_are_hidden_for_whole_queries(graphs: CandidateGraphs) -> None:
    before, after = (g.x.reshape(QUERIES, SIZE, -1) for g in (graphs, changed(graphs, score_dropout=0.3)))
    assert torch.equal(before[..., 0], after[..., 0])  # the base score stays
    hidden = after == 0
    assert (hidden.all(1) == hidden.any(1)).all()  # all candidates of a query or none
    assert torch.equal(hidden[..., 3], hidden[..., 4])  # an expansion's scores go together
    assert torch.equal(hidden[..., 6], hidden[..., 7])  # and so do those of a match
    for column in (1, 2, 3, 5, 6):
        assert abs(float(hidden[:, 0, column].float().mean()) - 0.3) < 0.08
    assert len(set(map(tuple, hidden[:, 0].tolist()))) > 20  # nearly every combination of five groups
    assert torch.equal(after[~hidden], before[~hidden])


def test_edges_are_hidden_for_whole_queries(graphs: CandidateGraphs) -> None:
    after = changed(graphs, edge_dropout=0.25)
    left = torch.bincount(after.edge_index[1] // SIZE, minlength=QUERIES)
    assert set(left.tolist()) == {0, 6}
    assert abs(float((left == 0).float().mean()) - 0.25) < 0.08
    assert len(after.edge_attr) == after.edge_index.shape[1]
    coverage, neighbourhood = (after.x[:, NAMES.index(name)] for name in NAMES[-2:])
    alone = (coverage == neighbourhood).reshape(QUERIES, SIZE)
    assert torch.equal(alone, (left == 0).unsqueeze(1).expand_as(alone))


@pytest.mark.parametrize(("name", "p"), [("base_swap", -0.1), ("score_dropout", 1.1), ("type_swap", float("nan"))])
def test_refuses_what_is_no_probability(name: str, p: float) -> None:
    with pytest.raises(ValueError, match=rf"`{name}` must lie in \[0, 1\]"):
        CandidateAugmentation(NAMES, **{name: p})


def test_scores_of_a_cross_encoder_are_hidden_together_and_by_nothing_else(graphs: CandidateGraphs) -> None:
    def hidden(**probabilities: float) -> torch.Tensor:
        after = changed(graphs, names=(*NAMES[:5], *CROSS_ENCODER_FEATURES), **probabilities)
        return (after.x == 0).reshape(QUERIES, SIZE, -1)

    alone = hidden(cross_encoder_dropout=0.3)
    assert not alone[..., :5].any()
    assert (alone[..., 5:] == alone[:, :1, 5:6]).all()  # all three columns of all candidates or none
    assert abs(float(alone[:, 0, 5].float().mean()) - 0.3) < 0.08
    assert not hidden(score_dropout=1.0)[..., 5:].any()


def test_shares_of_a_batch_draw_what_the_whole_batch_draws() -> None:
    def drawn(share: slice) -> list[torch.Tensor]:
        draws = QueryDraws(torch.Generator().manual_seed(3), 7, share)
        return [draws.uniform(), draws.choice(5), draws.uniform(2)]

    whole = drawn(slice(None))
    assert [tuple(part.shape) for part in whole] == [(7,), (7,), (7, 2)]
    for rank in range(3):
        share = slice(rank, None, 3)
        for part, all_of_it in zip(drawn(share), whole, strict=True):
            assert torch.equal(part, all_of_it[share])


TYPES_SIZE, TYPES_QUERIES = 6, 300


@pytest.fixture(scope="module")
def types_graphs() -> CandidateGraphs:
    """Many queries of six candidates, joined by edges of three types; some pairs in two ways."""
    one_way = torch.tensor([[0, 1, 2, 3, 0, 1, 4, 0], [1, 2, 3, 4, 1, 4, 5, 5]])
    kinds = torch.tensor([0, 0, 0, 1, 1, 1, 3, 3]).repeat(2)
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    edge_index = torch.cat([both + TYPES_SIZE * query for query in range(TYPES_QUERIES)], dim=1)
    edge_type = kinds.repeat(TYPES_QUERIES)
    weight = torch.rand(len(edge_type), generator=torch.Generator().manual_seed(0)) + 0.1
    x = torch.rand(TYPES_SIZE * TYPES_QUERIES, 2)
    ptr = torch.arange(0, TYPES_SIZE * TYPES_QUERIES + 1, TYPES_SIZE)
    return CandidateGraphs(x, edge_index, weight, ptr, edge_type=edge_type)


def edges_of(types_graphs: CandidateGraphs, query: int) -> dict[tuple[int, int, int], float]:
    own = types_graphs.edge_index[1] // TYPES_SIZE == query
    columns = (*(types_graphs.edge_index[:, own] - TYPES_SIZE * query).tolist(), types_graphs.edge_type[own].tolist())
    keys = list(zip(*columns, strict=True))
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, types_graphs.edge_attr[own].tolist(), strict=True))


def test_all_types_of_a_query_are_merged(types_graphs: CandidateGraphs) -> None:
    after, count = changed(types_graphs, names=["base_score"], type_merge=0.4), 0
    for query in range(TYPES_QUERIES):
        before, found = edges_of(types_graphs, query), edges_of(after, query)
        expected: dict[tuple[int, int, int], float] = {}
        for (source, target, _), weight in before.items():
            expected[source, target, OTHER] = max(weight, expected.get((source, target, OTHER), 0.0))
        assert found in (before, expected)
        count += found == expected
    assert abs(count / TYPES_QUERIES - 0.4) < 0.1


def test_types_trade_places_within_a_query(types_graphs: CandidateGraphs) -> None:
    after, orders = changed(types_graphs, names=["base_score"], type_swap=0.5), set()
    for query in range(TYPES_QUERIES):
        before, found = edges_of(types_graphs, query), edges_of(after, query)
        of_pair = {}
        for (source, target, kind), weight in before.items():
            same = [t for (s, e, t), w in found.items() if (s, e, w) == (source, target, weight)]
            assert len(same) == 1
            assert of_pair.setdefault(kind, same[0]) == same[0]
        assert len(found) == len(before)
        assert len(set(of_pair.values())) == 3  # two types never become one
        orders.add(tuple(sorted(of_pair.items())))
    assert len(orders) > 30


def test_the_edges_of_a_type_are_hidden(types_graphs: CandidateGraphs) -> None:
    after, left = changed(types_graphs, names=["base_score"], type_dropout=0.3), torch.zeros(len(EDGE_TYPES))
    for query in range(TYPES_QUERIES):
        before, found = edges_of(types_graphs, query), edges_of(after, query)
        kinds = {kind for _, _, kind in found}
        assert found == {key: weight for key, weight in before.items() if key[2] in kinds}
        left[list(kinds)] += 1
    assert left[[2, 4]].tolist() == [0, 0]  # were never there
    assert ((left[[0, 1, 3]] / TYPES_QUERIES - 0.7).abs() < 0.1).all()


def test_all_edges_of_a_query_are_dropped_before(types_graphs: CandidateGraphs) -> None:
    after = changed(types_graphs, names=["base_score", "bm25_score"], edge_dropout=0.5, type_merge=1.0)
    assert (after.edge_type == OTHER).all()
    left = len(torch.unique(after.edge_index[1] // TYPES_SIZE))
    assert abs(left / TYPES_QUERIES - 0.5) < 0.1


def test_merged_edges_are_refused_and_one_seed_draws_the_same(types_graphs: CandidateGraphs) -> None:
    draws = {"type_merge": 0.3, "type_swap": 0.5, "type_dropout": 0.2}
    first, again, other = (changed(types_graphs, seed, names=["base_score"], **draws) for seed in (1, 1, 2))
    assert torch.equal(first.edge_index, again.edge_index)
    assert torch.equal(first.edge_type, again.edge_type)
    assert first.edge_index.shape != other.edge_index.shape
    merged = CandidateGraphs(types_graphs.x, types_graphs.edge_index, types_graphs.edge_attr, types_graphs.ptr)
    with pytest.raises(ValueError, match=r"must be 0 for edges without types, .* use a model with `num_edge_types`"):
        changed(merged, names=["base_score"], type_swap=0.1)


def test_random_edges_of_one_type_are_added(types_graphs: CandidateGraphs) -> None:
    after, noisy, kinds = changed(types_graphs, names=["base_score"], edge_noise=0.5), 0, set()
    for query in range(TYPES_QUERIES):
        before, found = edges_of(types_graphs, query), edges_of(after, query)
        added = found.keys() - before.keys()
        assert all(found[key] in (weight, max(weight, 1.0)) for key, weight in before.items())
        assert len({kind for _, _, kind in added}) <= 1
        assert all((target, source, kind) in found for source, target, kind in added)
        assert all(source != target for source, target, _ in added)
        noisy, kinds = noisy + bool(added), kinds | {kind for _, _, kind in added}
    assert abs(noisy / TYPES_QUERIES - 0.5) < 0.1
    assert kinds == set(range(len(EDGE_TYPES)))


def test_a_list_is_cut_where_a_relevant_candidate_is_left() -> None:
    size, count = 100, 60
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(size * count, 1, generator=generator)
    ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
    edges = torch.cat([ring + size * query for query in range(count)], dim=1)
    relevance = torch.zeros(size * count)
    first, last = x.view(count, size).argsort(dim=1, descending=True)[:, [0, -1]].T
    is_first = torch.arange(count) % 2 == 0
    relevance[torch.where(is_first, first, last) + size * torch.arange(count)] = 1.0
    graphs = CandidateGraphs(
        x,
        edges,
        torch.ones(edges.shape[1]),
        torch.arange(0, size * count + 1, size),
        nodes=torch.arange(size * count),
        inputs={"degree": torch.arange(size * count), "query_vectors": torch.rand(count, 3)},
        relevance=relevance,
    )
    after = changed(graphs, names=["base_score"], list_cut=0.8)
    sizes = after.ptr.diff()
    assert (sizes[~is_first] == size).all()
    cut = sizes[is_first & (sizes < size)]
    assert len(cut) > 15
    assert cut.min() >= 20
    assert cut.max() < 80
    assert after.nodes is not None
    assert torch.equal(after.x, graphs.x[after.nodes])
    assert torch.equal(after.inputs["degree"], after.nodes)
    for query in range(count):
        kept = after.nodes[after.ptr[query] : after.ptr[query + 1]]
        assert x[kept].min() >= x[size * query : size * (query + 1)].sort(dim=0, descending=True).values[len(kept) - 1]
    left = {(int(a), int(b)) for a, b in after.nodes[after.edge_index].T}
    assert left == {(int(a), int(b)) for a, b in edges.T if {int(a), int(b)} <= set(after.nodes.tolist())}
