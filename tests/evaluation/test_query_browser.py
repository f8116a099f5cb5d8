from dataclasses import replace
from typing import Any

import torch

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.query_browser import browse_queries
from graphrerank.graphs import CorpusGraph, Ranking

IDS, TEXTS = ["q1", "q2", "q3"], ["one", "two", "three"]


def graph_of_two_types() -> CorpusGraph:
    edges, types = torch.tensor([[0, 1], [0, 1], [1, 2], [3, 4], [0, 5]]), torch.tensor([0, 1, 0, 3, 1])
    return CorpusGraph.from_edges(
        list("abcdef"), [f"{name}\n <b>text</b>" for name in "abcdef"], edges, edge_type=types
    )


def browser(**changed: torch.Tensor) -> dict[str, Any]:
    rankings = {
        "retriever": Ranking(torch.tensor([[0, 1, 2], [3, 4, -1], [5, 0, 1]]), torch.zeros(3, 3)),
        "gatv2": Ranking(torch.tensor([[2, 1, 0], [4, 3, -1], [5, 1, 3]]), torch.zeros(3, 3)),
    }
    scores = {"retriever": torch.tensor([0.5, 0.0, torch.nan]), "gatv2": torch.tensor([0.75, 1.0, 1.0]), **changed}
    relevant = torch.tensor([[2, 4], [4, -1], [0, -1]])
    return browse_queries(
        graph_of_two_types(), rankings, scores, relevant, measure="PR@2", query_ids=IDS, query_texts=TEXTS
    )


def test_queries_that_differ_most_come_first() -> None:
    found = browser()
    assert [query[:4] for query in found["queries"]] == [  # NaN last
        ["q2", "two", 1, [0.0, 1.0]],
        ["q1", "one", 2, [0.5, 0.75]],
        ["q3", "three", 1, [None, 1.0]],
    ]
    ids = [node_id for node_id, _ in found["passages"]]
    named = [[[ids[place] for place in ranked] for ranked in query[4]] for query in found["queries"]]
    assert named == [[["d", "e"], ["e", "d"]], [["a", "b", "c"], ["c", "b", "a"]], [["f", "a", "b"], ["f", "b", "d"]]]
    assert [[ids[place] for place in query[5]] for query in found["queries"]] == [["e"], ["c"], ["a"]]
    assert found["passages"][0] == ("a", "a <b>text</b>")


def test_edges_are_between_what_either_ranks_with_their_types() -> None:
    found = browser()
    ids = [node_id for node_id, _ in found["passages"]]
    edges = [sorted(ids[a] + ids[b] + str(kind) for a, b, kind in query[6]) for query in found["queries"]]
    assert edges == [["de3"], ["ab0", "ab1", "bc0"], ["ab0", "ab1", "af1"]]
    assert found["types"] == {"0": "reference", "1": "entity", "3": "similarity"}


def test_equal_ones_are_ordered_by_id_and_the_number_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr("graphrerank.evaluation.query_browser.MOST", 2)
    same = browser(retriever=torch.ones(3), gatv2=torch.ones(3))
    assert [query[0] for query in same["queries"]] == ["q1", "q2"]


def test_one_system_alone(prepared: PreparedDataset) -> None:
    ranking = replace(prepared.ranking, features=None)
    alone = browse_queries(
        prepared.dataset.graph, {"a.run": ranking}, {"a.run": torch.ones(3)}, torch.tensor([[0], [3], [5]]),
        measure="R@5", query_ids=IDS, query_texts=TEXTS,
    )  # fmt: skip
    assert [len(query[4]) for query in alone["queries"]] == [1, 1, 1]
