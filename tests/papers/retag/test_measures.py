from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank.graphs import Ranking
from graphrerank_papers.retag.measures import most_relevant, read_by_pairs, summary_recall


class LengthEncoder:
    """A pair encoder that likes long passages and remembers what it read."""

    hidden_size = 1
    fingerprint = "length"

    def __init__(self) -> None:
        self.read: list[tuple[str, str]] = []

    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        self.read += zip(query_texts, passages, strict=True)
        return torch.tensor([[float(len(passage))] for passage in passages])

    def head(self, vectors: Tensor) -> Tensor:
        return vectors.squeeze(-1)


def test_every_candidate_is_read_once() -> None:
    encoder, told = LengthEncoder(), []
    candidates = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])
    scores = read_by_pairs(
        encoder, ["q", "r", "s"], ["a", "bb", "ccc"], candidates, advance=lambda done, total: told.append((done, total))
    )
    inf = torch.inf
    assert scores.tolist() == [[1, -inf, 3], [-inf, -inf, -inf], [1, 2, 3]]
    assert encoder.read == [("q", "a"), ("q", "ccc"), ("s", "a"), ("s", "bb"), ("s", "ccc")]
    assert told == [(2, 5), (2, 5), (5, 5)]


def test_the_most_relevant_are_candidates() -> None:
    inf = torch.inf
    scores = torch.tensor([[1.0, -inf, 3.0, 1.0], [-inf, -inf, -inf, -inf], [-inf, 5.0, -inf, -inf]])
    assert most_relevant(scores, 2).int().tolist() == [[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 0, 0]]


def test_recall_by_hand() -> None:
    relevant = torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]]).bool()
    nodes = torch.tensor([[3, 1, 0], [1, 2, -1], [2, -1, -1]])
    ranking = Ranking(nodes, torch.zeros(3, 3))
    recall = summary_recall(ranking, relevant, top_k=2)
    torch.testing.assert_close(recall, torch.tensor([1 / 3, torch.nan, 1.0]).double(), equal_nan=True)
    none = summary_recall(Ranking(nodes[:0], torch.zeros(0, 3)), relevant[:0], top_k=2)
    assert none.shape == (0,)
