import csv
from io import StringIO

import torch

from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.diagnose import HEADER, chosen_queries, pool_csv
from graphrerank.graphs import CorpusGraph, Ranking

TEXTS = ['one, "quoted"', "two\nlines", "=SUM(A1)", "four", "five"]


def dataset(num_queries: int = 2) -> Dataset:
    graph = CorpusGraph.from_edges(list("abcde"), TEXTS, torch.zeros(0, 2))
    ids = [f"q{number}" for number in range(num_queries)]
    return Dataset("mine", graph, ids, [f"-question {name}" for name in ids], {})


def ranking(*rows: list[int]) -> Ranking:
    nodes = torch.tensor(rows)
    return Ranking(nodes, torch.zeros_like(nodes).float())


def test_the_first_of_each_ranking_once() -> None:
    found = [ranking([0, 1, 4], [3, -1, -1]), ranking([2, 0, 3], [4, 3, 2])]
    rows = list(csv.reader(StringIO(pool_csv(dataset(), torch.tensor([1, 0]), found, depth=2))))
    assert tuple(rows[0]) == HEADER
    assert {row[1] for row in rows[1:] if row[0] == "q1"} == {"a", "b", "c"}
    assert {row[1] for row in rows[1:] if row[0] == "q0"} == {"d", "e"}
    assert len(rows) == 6
    assert all(row[2] == "" for row in rows[1:])
    texts = {row[1]: row[4] for row in rows[1:]}
    assert texts == {"a": TEXTS[0], "b": TEXTS[1], "c": "'=SUM(A1)", "d": "four", "e": "five"}  # no formula
    assert rows[1][3].startswith("'-question")


def test_the_order_says_nothing_of_the_systems() -> None:
    one, other = ranking([0, 1, 2, 3, 4]), ranking([4, 3, 2, 1, 0])
    queries = torch.tensor([0])
    assert pool_csv(dataset(), queries, [one]) == pool_csv(dataset(), queries, [other])
    rows = list(csv.reader(StringIO(pool_csv(dataset(), queries, [one]))))[1:]
    assert [row[1] for row in rows] != sorted(row[1] for row in rows)


def test_questions_are_chosen_whatever_their_order() -> None:
    data = dataset(30)
    chosen = chosen_queries(data, 8).tolist()
    assert len(chosen) == 8
    assert chosen == sorted(chosen)
    assert chosen != list(range(8))
    assert chosen_queries(dataset(3), 8).tolist() == [0, 1, 2]
