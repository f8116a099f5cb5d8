import pytest
import torch

from graphrerank.core import Ranking, top_k_by_node_order


def naive_top_k(scores: list[float], top_k: int) -> tuple[list[int], list[float]]:
    order = sorted((i for i, s in enumerate(scores) if s > -torch.inf), key=lambda i: (-scores[i], i))[:top_k]
    padding = top_k - len(order)
    return order + [-1] * padding, [scores[i] for i in order] + [-torch.inf] * padding


@pytest.mark.parametrize("top_k", [1, 2, 5, 12, 13, 40])
@pytest.mark.parametrize("seed", range(5))
def test_top_k_against_naive_sort(seed: int, top_k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 4, (6, 12), generator=generator) / 2.0  # four different scores: ties at every cut
    scores[torch.rand(6, 12, generator=generator) < 0.2] = -torch.inf
    scores[0] = -torch.inf
    scores[1] = 1.0
    nodes, kept = top_k_by_node_order(scores, top_k)
    for row in range(6):
        assert (nodes[row].tolist(), kept[row].tolist()) == naive_top_k(scores[row].tolist(), top_k)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0), (0, 0)])
def test_top_k_of_nothing_and_of_nan(shape: tuple[int, int]) -> None:
    nodes, scores = top_k_by_node_order(torch.zeros(shape), 3)
    assert nodes.tolist() == [[-1, -1, -1]] * shape[0]
    assert scores.tolist() == [[-torch.inf] * 3] * shape[0]
    with pytest.raises(ValueError, match="`scores` must not contain NaN"):
        top_k_by_node_order(torch.tensor([[0.0, torch.nan]]), 1)


def test_ranking_selects_rows_in_order_and_checks_shapes() -> None:
    ranking = Ranking(torch.tensor([[0, 1], [2, 3], [4, 5]]), torch.rand(3, 2), torch.rand(3, 2, 4))
    some = ranking.select(torch.tensor([2, 0]))
    assert (some.nodes.tolist(), len(ranking), len(some)) == ([[4, 5], [0, 1]], 3, 2)
    assert torch.equal(some.scores, ranking.scores[[2, 0]])
    assert torch.equal(some.features, ranking.features[[2, 0]])
    for scores in (torch.zeros(2, 3), torch.zeros(2)):
        with pytest.raises(
            ValueError, match=r"`nodes` and `scores` must have the same shape \[B, K\], got \[2, 2\] and"
        ):
            Ranking(torch.zeros(2, 2, dtype=torch.int64), scores)


@pytest.mark.parametrize("num_nodes", [1281, 2000, 64 * 64 * 20 + 1])
@pytest.mark.parametrize("values", [2, 50, 10**6])
def test_many_nodes_against_a_sort(num_nodes: int, values: int) -> None:
    """With ties at the cut, nodes that must not be ranked, rows of too few nodes, and a last block that is short."""
    generator = torch.Generator().manual_seed(num_nodes + values)
    scores = torch.randint(-values // 3, values, (5, num_nodes), generator=generator).clamp(min=0).float()
    scores[0, torch.rand(num_nodes, generator=generator) < 0.9] = -torch.inf
    scores[1] = -torch.inf
    scores[1, [3, num_nodes - 1]] = torch.tensor([1.0, 2.0])
    scores[2] = 0.0
    scores[3, :-1] = 0.0
    nodes, kept = top_k_by_node_order(scores, 5)
    for row, found, best in zip(scores.tolist(), nodes.tolist(), kept.tolist(), strict=True):
        assert (found, best) == naive_top_k(row, 5)
    scores[4, num_nodes // 2] = torch.nan
    with pytest.raises(ValueError, match="NaN"):
        top_k_by_node_order(scores, 5)
    assert top_k_by_node_order(scores[:0], 5)[0].shape == (0, 5)
