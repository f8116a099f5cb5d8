from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.graphs import Ranking
from graphrerank_papers.retag.page import RecallTable, compare_recall, reading_table, recall_table
from graphrerank_papers.retag.summary_retrieval import (
    Latency,
    Reading,
    SummaryResult,
    most_relevant,
    read_by_pairs,
    summary_recall,
)


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


def result(name: str, recall: list[float]) -> SummaryResult:
    return SummaryResult(name, {"weight": 0.25}, torch.tensor(recall).double(), Latency(1.0, 2.0, 0.5))


def test_comparisons_and_table() -> None:
    better, worse = [0.9, 0.8, 1.0, 0.7, 0.9, 0.8, 0.9, 1.0], [0.1, 0.2, 0.3, 0.1, 0.2, 0.1, 0.2, 0.3]
    results = [result("a", worse), result("b", better), result("c", worse)]
    compared = compare_recall(results, [("b", "a"), ("c", "a")], seed=0)
    assert compared[0].difference == pytest.approx(0.6875)
    assert compared[0].p_value == pytest.approx(2 * 2 / 256, rel=0.3)  # all or no signs flipped, times two comparisons
    assert compared[0].interval[0] > 0.5
    assert (compared[1].difference, compared[1].p_value) == (0.0, 1.0)
    text = recall_table(RecallTable("topics", 0, 10, 20.0, 4, results, compared))
    assert "| b | 87.5 |" in text
    assert "| weight 0.25 |" in text
    assert "- b against a: +68.7 points (" in text
    content = RecallTable("topics", 0, 10, 20.0, 4, results, compared).to_json()
    assert content["questions"] == {"chosen_on": 4, "judged_on": 8}
    assert content["systems"]["a"] == {
        "settings": {"weight": 0.25},
        "recall": pytest.approx(0.1875),
        "ms": {"p50": 1.0, "p95": 2.0, "cpu": 0.5},
    }
    assert content["comparisons"][0]["first"] == "b"


def test_reading_beside_the_first_row_of_its_level() -> None:
    readings = [
        Reading("all", 0, 40.0, 8000.0, Latency(0.5, 1.25, 0.4)),
        Reading("some", 0, 10.0, 2000.0, Latency(3.0, 4.0, 2.0), (0.5, 0.25, 0.25)),
        Reading("all", 1, 0.0, 0.0, Latency(0.1, 0.2, 0.1)),
    ]
    lines: list[Any] = reading_table(readings).splitlines()[2:]
    assert lines[0] == "| 0 | all | 40.0 | 8,000 | 100.0 | 100 | 0 | 0 | 0.5 | 1.2 | 0.4 |"
    assert lines[1] == "| 0 | some | 10.0 | 2,000 | 25.0 | 50 | 25 | 25 | 3.0 | 4.0 | 2.0 |"
    assert lines[2] == "| 1 | all | 0.0 | 0 | nan | 100 | 0 | 0 | 0.1 | 0.2 | 0.1 |"
    assert readings[1].to_json()["ms"] == {"p50": 3.0, "p95": 4.0, "cpu": 2.0}
