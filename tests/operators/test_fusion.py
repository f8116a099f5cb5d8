import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.operators.fusion import weighted_rank_fusion


def ranking(*rows: list[int]) -> Ranking:
    nodes = torch.tensor(rows)
    return Ranking(nodes, torch.where(nodes >= 0, torch.arange(nodes.shape[1], 0, -1).float(), -torch.inf))


def test_against_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    depths, weights = (9, 4, 12), torch.rand(8, 3, generator=generator)
    rankings = []
    for depth in depths:
        rows = [torch.randperm(20, generator=generator)[:depth] for _ in range(8)]
        for row, kept in enumerate(torch.randint(0, depth + 1, (8,), generator=generator).tolist()):
            rows[row][kept:] = -1
        rankings.append(ranking(*(row.tolist() for row in rows)))
    fused = weighted_rank_fusion(rankings, weights, top_k=10, rank_offset=7.0)
    for row in range(8):
        scores: dict[int, float] = {}
        for one, weight in zip(rankings, weights[row].tolist(), strict=True):
            for rank, node in enumerate(one.nodes[row].tolist(), 1):
                if node >= 0:
                    scores[node] = scores.get(node, 0.0) + weight / (7.0 + rank)
        best = sorted(scores, key=lambda node: (-scores[node], node))[:10]
        assert fused.nodes[row].tolist() == best + [-1] * (10 - len(best))
        torch.testing.assert_close(fused.scores[row, : len(best)], torch.tensor([scores[node] for node in best]))


def test_ties_go_by_node_and_nothing_gives_padding() -> None:
    for queries, depth in ((0, 3), (2, 0)):
        none = Ranking(torch.zeros(queries, depth, dtype=torch.int64), torch.zeros(queries, depth))
        fused = weighted_rank_fusion([none, none], torch.ones(queries, 2), top_k=3)
        assert fused.nodes.tolist() == [[-1] * 3] * queries
    fused = weighted_rank_fusion([ranking([4, 8]), ranking([3, 9])], torch.tensor([[0.5, 0.5]]), top_k=4)
    assert fused.nodes.tolist() == [[3, 4, 8, 9]]


@pytest.mark.parametrize(
    ("rankings", "arguments", "message"),
    [
        (0, {}, "`rankings` must contain at least one ranking, got none"),
        (2, {"weights": torch.ones(1, 3)}, r"`weights` must have shape \[B, 2\], .*got weights of shape \[1, 3\]"),
        (2, {"weights": torch.ones(2, 2)}, r"got weights of shape \[2, 2\] and rankings of \[1, 1\] queries"),
        (2, {"weights": torch.tensor([[0.5, -0.5]])}, "`weights` must not be negative, got -0.5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(rankings: int, arguments: dict, message: str) -> None:
    arguments = {"weights": torch.ones(1, 2), "top_k": 3, **arguments}
    with pytest.raises(ValueError, match=message):
        weighted_rank_fusion([ranking([1, 2])] * rankings, **arguments)
