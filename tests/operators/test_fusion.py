import pytest
import torch

from graphrerank.core import CandidateGraphs, Ranking
from graphrerank.operators.fusion import RankFusion, weighted_rank_fusion
from graphrerank.operators.ppr import PPR


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


def test_rank_fusion_of_candidates_against_naive_loop() -> None:
    generator = torch.Generator().manual_seed(3)
    sizes = (5, 1, 7)
    ptr = torch.tensor([0, *torch.tensor(sizes).cumsum(0).tolist()])
    x = torch.rand(sum(sizes), 3, generator=generator).round(decimals=1)  # with ties
    edges = torch.tensor([[0, 1, 7, 8], [1, 0, 8, 7]])
    graphs = CandidateGraphs(x, edges, torch.ones(4), ptr)
    columns = [x[:, 1], x[:, 2], PPR(restart_prob=0.3).score(graphs)]
    expected = torch.zeros(sum(sizes))
    for start, stop in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True):
        for column in columns:
            part = column[start:stop]
            for place, score in enumerate(part.tolist()):
                higher, equal = int((part > score).sum()), int((part == score).sum())
                expected[start + place] += 1 / (60 + higher + (equal + 1) / 2)
    assert torch.allclose(RankFusion(restart_prob=0.3).score(graphs), expected)


def test_rank_fusion_of_a_batch_equals_that_of_single_graphs() -> None:
    generator = torch.Generator().manual_seed(4)
    x, none = torch.rand(9, 3, generator=generator), torch.zeros(2, 0, dtype=torch.int64)
    batch = CandidateGraphs(x, none, torch.zeros(0), torch.tensor([0, 4, 9]))
    single = [CandidateGraphs(rows, none, torch.zeros(0), torch.tensor([0, len(rows)])) for rows in (x[:4], x[4:])]
    fusion = RankFusion()
    assert torch.equal(fusion.score(batch), torch.cat([fusion.score(graphs) for graphs in single]))


def test_rank_fusion_needs_a_positive_offset() -> None:
    with pytest.raises(ValueError, match="rank_offset"):
        RankFusion(rank_offset=0.0)
