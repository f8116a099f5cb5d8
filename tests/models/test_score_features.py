import math

import pytest
import torch
from torch import Tensor

from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.models.score_features import ScoreFeatures, min_max_by_graph, rank_by_graph
from graphrerank.operators.gcs import graph_cohesive_smoothing

NUM_SCORES = 3
EDGE_COLUMNS = ("gcs", "log_degree", "mean_neighbour_a", *(f"best_neighbour_{name}" for name in "abc"))


def random_batch(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = [6, 0, 1, 9]
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    scores = torch.randint(0, 6, (sum(sizes), NUM_SCORES), generator=generator).double()  # ties
    scores[ptr[3] :, 2] = 4.0  # constant within the last graph
    pairs = [
        (start + int(a), start + int(b))
        for start, size in zip(ptr[:-1].tolist(), sizes, strict=True)
        for a, b in torch.randint(0, max(size, 1), (2 * size, 2), generator=generator)
        if a != b
    ]
    edge_index = torch.tensor(sorted(set(pairs))).T
    return scores, edge_index, torch.rand(edge_index.shape[1], generator=generator).double() + 0.1, ptr


@pytest.mark.parametrize("seed", range(4))
def test_against_naive_loop(seed: int) -> None:
    scores, edge_index, weight, ptr = random_batch(seed)
    found = ScoreFeatures(num_scores=NUM_SCORES, restart_prob=0.3)(scores, edge_index, weight, ptr)
    scaled = torch.zeros_like(scores)
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        for column in range(NUM_SCORES):
            part = scores[start:stop, column].tolist()
            for i, score in enumerate(part):
                spread = max(part) - min(part)
                scaled[start + i, column] = (score - min(part)) / spread if spread else 0.0
    gcs = graph_cohesive_smoothing(scaled[:, 0], edge_index, weight, 0.3, 80)
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        for node in range(start, stop):
            neighbours = edge_index[0][edge_index[1] == node]
            near = scaled[neighbours]
            base = scores[start:stop, 0].tolist()
            num_higher = sum(score > float(scores[node, 0]) for score in base)
            rank = num_higher + (base.count(float(scores[node, 0])) + 1) / 2  # the mean rank of ties
            expected = [
                *scaled[node].tolist(),
                float(gcs[node]),
                1 / rank,
                math.log(rank) / 5,
                math.log(1 + len(near)) / 3,
                float(near[:, 0].mean()) if len(near) else 0.0,
                *(near.max(0).values.tolist() if len(near) else [0.0] * NUM_SCORES),
            ]
            assert found[node].tolist() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_features_of_each_type_are_those_of_its_edges_alone(seed: int) -> None:
    scores, edge_index, weight, ptr = random_batch(seed)
    edge_index, weight = edge_index.repeat(1, 2), weight.repeat(2)  # pairs that are joined in two ways
    half = edge_index.shape[1] // 2
    edge_type = torch.cat([torch.randint(0, 2, (half,)), torch.randint(2, 4, (half,))])
    typed, plain = (ScoreFeatures(num_scores=NUM_SCORES, restart_prob=0.3, num_edge_types=n) for n in (5, 0))
    found = typed(scores, edge_index, weight, ptr, edge_type)
    names, names_of_all = typed.names(["a", "b", "c"]), plain.names(["a", "b", "c"])
    assert len(names) == len(set(names)) == typed.num_columns == found.shape[1]
    assert names[: plain.num_columns] == names_of_all
    assert torch.equal(found[:, : plain.num_columns], plain(scores, edge_index, weight, ptr))
    for number, name in enumerate(EDGE_TYPES):
        own = edge_type == number
        expected = plain(scores, edge_index[:, own], weight[own], ptr)
        columns = [names.index(f"{column}_{name}") for column in EDGE_COLUMNS]
        torch.testing.assert_close(found[:, columns], expected[:, [names_of_all.index(c) for c in EDGE_COLUMNS]])


@pytest.mark.parametrize("num_edge_types", [0, 5])
def test_words_that_pairs_and_neighbours_cover_together(num_edge_types: int) -> None:
    features = ScoreFeatures(num_scores=4, num_words=3, num_edge_types=num_edge_types)
    words = torch.tensor([[0.5, 0.0, 0.0], [0.5, 0.2, 0.0], [0.0, 0.0, 0.3], [0.0, 0.2, 0.0]])
    edges = torch.tensor([[1, 2, 0, 0, 3], [0, 0, 1, 2, 2]])
    types = torch.tensor([0, 1, 0, 1, 4])
    found = features(torch.cat([torch.rand(4, 1), words], dim=1), edges, torch.ones(5), torch.tensor([0, 4]), types)
    names = features.names(["base", "one", "two", "three"])
    assert len(set(names)) == len(names) == features.num_columns == found.shape[1]
    column = {name: found[:, place].tolist() for place, name in enumerate(names)}
    covered = torch.tensor([1.0, 0.7, 1.0, 0.2])  # 0 with 1 and 2; 1 with 0; 2 with 0 and 3; 3 alone
    assert column["covered_with_neighbours"] == pytest.approx(((covered - 0.2) / 0.8).tolist())
    assert column["covered_beyond_both"] == pytest.approx([0.3, 0.0, 0.3, 0.0])
    assert column["covered_beyond_own"] == pytest.approx([0.3, 0.0, 0.5, 0.0])
    if num_edge_types:
        assert column["covered_beyond_own_reference"] == pytest.approx([0.2, 0.0, 0.0, 0.0])
        assert column["covered_beyond_own_entity"] == pytest.approx([0.3, 0.0, 0.5, 0.0])
        assert column["covered_beyond_both_other"] == pytest.approx([0.0, 0.0, 0.2, 0.0])


def test_rounding_of_coverage_is_not_stretched() -> None:
    features = ScoreFeatures(num_scores=25, num_words=24)
    place = features.names([str(number) for number in range(25)]).index("covered_with_neighbours")
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        share = torch.rand(12, generator=generator) / 12
        order = torch.randperm(12, generator=generator)
        words = torch.zeros(2, 24)
        words[0, :12], words[1, 12:] = share, share[order]
        scores, none = torch.cat([torch.rand(2, 1), words], dim=1), torch.zeros(2, 0, dtype=torch.int64)
        found = features(scores, none, torch.zeros(0), torch.tensor([0, 2]))
        assert (found[:, place] < 1e-6).all()


def test_scaling_survives_huge_and_negative_scores() -> None:
    scores = torch.tensor([[-3e8], [-1e8], [1e8], [-5.0], [-5.0]])
    found = min_max_by_graph(scores, torch.tensor([0, 0, 0, 1, 1]), 2)
    torch.testing.assert_close(found.flatten(), torch.tensor([0.0, 0.5, 1.0, 0.0, 0.0]))


def test_ranks_of_ties_are_their_mean() -> None:
    scores = torch.tensor([0.5, 0.9, 0.5, -0.0, 0.0, 0.1, 0.1, 0.7])
    graph, ptr = torch.tensor([0, 0, 0, 0, 0, 2, 2, 3]), torch.tensor([0, 5, 5, 7, 8])
    assert rank_by_graph(scores, graph, ptr).tolist() == [2.5, 1, 2.5, 4.5, 4.5, 1.5, 1.5, 1]


def test_ranks_of_no_nodes_and_of_nan() -> None:
    nothing = torch.zeros(0, dtype=torch.int64)
    assert rank_by_graph(torch.zeros(0), nothing, torch.tensor([0, 0])).tolist() == []
    ranks = rank_by_graph(torch.full((3,), torch.nan), torch.zeros(3, dtype=torch.int64), torch.tensor([0, 3]))
    assert sorted(ranks.tolist()) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_the_nodes_permutes_the_features(seed: int) -> None:
    scores, edge_index, weight, ptr = random_batch(seed)
    generator = torch.Generator().manual_seed(seed)
    sizes = ptr.diff().tolist()
    order = torch.cat(
        [
            torch.randperm(size, generator=generator) + start
            for size, start in zip(sizes, ptr[:-1].tolist(), strict=True)
        ]
    )
    features = ScoreFeatures(num_scores=NUM_SCORES)
    expected = features(scores, edge_index, weight, ptr)[order]
    permuted = features(scores[order], torch.argsort(order)[edge_index], weight, ptr)
    torch.testing.assert_close(permuted, expected, rtol=0, atol=1e-12)
