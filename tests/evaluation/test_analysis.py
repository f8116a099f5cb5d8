import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats

from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.analysis import (
    break_down,
    browse_queries,
    edges_of_type,
    hub_bias,
    mean_degree,
    mean_spearman,
    quantile_groups,
    query_differences,
    relevant_groups,
)
from graphrerank.evaluation.records import DatasetResult, EdgesOfType, SystemResult
from graphrerank.graphs import CorpusGraph, Ranking


def result_of(
    scores: dict[str, torch.Tensor], ids: list[str], texts: list[str], rankings: dict[str, Ranking] | None = None
) -> DatasetResult:
    systems = {
        name: SystemResult(name, "run", name, {"R@5": row}, {}, ranking=(rankings or {}).get(name))
        for name, row in scores.items()
    }
    return DatasetResult("toy", "test", "f", ids, texts, [2] * len(ids), systems, ("R@5",))


def test_the_largest_gains_and_losses() -> None:
    base = torch.full((30,), 0.5, dtype=torch.float64)
    ours = base + torch.linspace(-0.3, 0.29, 30, dtype=torch.float64)
    ours[3], base[4] = 0.5, math.nan  # no change; does not count
    ids = [f"q{row:02}" for row in range(30)]
    found = query_differences(result_of({"b": base, "a": ours}, ids, ids), baseline="b")
    assert [one.query_id for one in found[:10]] == [f"q{row}" for row in range(29, 19, -1)]
    assert [one.query_id for one in found[10:]] == ["q00", "q01", "q02", *(f"q{row:02}" for row in range(5, 12))]
    assert all(one.system_score < one.baseline_score for one in found[10:])
    assert found[0].num_relevant == 2


def test_means_of_groups() -> None:
    scores = {"a": torch.tensor([1.0, 0.0, math.nan]), "b": torch.tensor([0.5, 0.5, math.nan])}
    groups = {"relevant nodes": relevant_groups([1, 1, 30])}
    (one,) = break_down(scores, groups, measure="R@5")  # nothing counts in the other one
    assert (one.by, one.group, one.num_queries, one.means) == ("relevant nodes", "1", 2, {"a": 0.5, "b": 0.5})


def test_groups_cover_every_query_once() -> None:
    numbers = torch.tensor([4.0, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0])
    groups = quantile_groups(numbers, unit="words")
    assert list(groups) == ["1 words", "4 to 9 words"]
    assert torch.stack(list(groups.values())).sum(0).tolist() == [1] * 7
    assert quantile_groups(torch.ones(5), unit="words") == {}
    relevant = relevant_groups([1, 2, 3, 5, 6, 20, 21, 100])
    assert torch.stack(list(relevant.values())).sum(0).tolist() == [1] * 8


def test_edges_of_each_type_are_described() -> None:
    edges, types = torch.tensor([[0, 1], [1, 2], [0, 3], [0, 1]]), torch.tensor([0, 0, 0, 3])
    graph = CorpusGraph.from_edges(list("abcdef"), [""] * 6, edges, edge_type=types)
    nodes = torch.tensor([[0, 1, 2, 4], [0, 1, 3, -1]])
    relevance = torch.tensor([[True, True, False, False], [False, False, True, False]])
    reference, similarity = edges_of_type(graph, nodes, relevance)
    # a-b, b-c; a-b, a-d: neighbours of a, b are b, a and c; those of d: a
    assert reference == EdgesOfType("reference", 2.0, 6 / 7, 2 / 3, 2 / 4, 3 / 7)
    assert similarity == EdgesOfType("similarity", 1.0, 4 / 7, 2 / 3, 1.0, 3 / 7)


def test_edges_where_nothing_is_relevant() -> None:
    graph = CorpusGraph.from_edges(list("ab"), [""] * 2, torch.tensor([[0, 1]]))
    (other,) = edges_of_type(graph, torch.tensor([[0, 1]]), torch.zeros(1, 2, dtype=torch.bool))
    assert (other.share_reached, other.share_relevant, other.base_rate) == (None, None, 0.0)


def star(num_leaves: int = 19) -> CorpusGraph:
    """Node 0 is joined with all others; 1 and 2 with each other."""
    edges = [[0, leaf] for leaf in range(1, num_leaves + 1)] + [[1, 2]]
    return CorpusGraph.from_edges(
        [f"n{i}" for i in range(num_leaves + 1)], [""] * (num_leaves + 1), torch.tensor(edges)
    )


def test_against_scipy() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randint(0, 5, (20, 12), generator=generator).double()
    b = torch.randint(0, 5, (20, 12), generator=generator).double()
    a[3], b[3] = math.nan, math.nan
    a[4, 6:], b[4, 6:] = math.nan, math.nan
    a[5] = 1.0
    expected = [
        stats.spearmanr(*(row[~row.isnan()] for row in pair)).statistic
        for place, pair in enumerate(zip(a, b, strict=True))
        if place not in (3, 5)
    ]
    assert mean_spearman(a, b) == pytest.approx(sum(expected) / len(expected))
    assert math.isnan(mean_spearman(a[5:6], b[5:6]))


def test_a_system_that_ranks_by_degree() -> None:
    graph = star()
    nodes = torch.tensor([[0, 1, 2, 3], [0, 2, 5, -1]])
    ranking = Ranking(nodes, graph.degree[nodes.clamp(min=0)].float().masked_fill(nodes < 0, -math.inf))
    found = hub_bias(graph, ranking, torch.tensor([[3, -1], [5, 6]]), system="degree")
    assert found.correlation == pytest.approx(1.0)
    assert found.hub_degree == 2  # the top tenth of 20 nodes: the centre, and the two of the next degree
    assert found.lift == pytest.approx((5 / 7) / (3 / 20))
    assert found.relevant_lift == 0.0
    assert found.relevant_correlation < 0


def test_no_hub_where_all_degrees_are_equal() -> None:
    ring = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.tensor([[0, 1], [1, 2], [2, 0]]))
    ranking = Ranking(torch.tensor([[0, 1]]), torch.tensor([[2.0, 1.0]]))
    assert hub_bias(ring, ranking, torch.tensor([[0]]), system="x") is None
    assert hub_bias(ring.without_edges(), ranking, torch.tensor([[0]]), system="x") is None


def test_mean_degree_by_hand() -> None:
    graph = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1], [1, 2]]))
    nodes = torch.tensor([[0, 1, 2, 3], [0, 2, -1, -1], [0, 1, -1, -1], [-1, -1, -1, -1]])
    assert mean_degree(graph, nodes).tolist() == [1.0, 0.0, 1.0, 0.0]


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
    return browse_queries(result_of(scores, IDS, TEXTS, rankings), graph_of_two_types(), relevant)


def test_queries_that_differ_most_come_first() -> None:
    found = browser()
    assert [query[:4] for query in found["queries"]] == [  # NaN last
        ["q2", "two", 2, [0.0, 1.0]],
        ["q1", "one", 2, [0.5, 0.75]],
        ["q3", "three", 2, [None, 1.0]],
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
    monkeypatch.setattr("graphrerank.evaluation.analysis.BROWSED", 2)
    same = browser(retriever=torch.ones(3), gatv2=torch.ones(3))
    assert [query[0] for query in same["queries"]] == ["q1", "q2"]


def test_one_system_alone(prepared: PreparedDataset) -> None:
    result = result_of({"a.run": torch.ones(3)}, IDS, TEXTS, {"a.run": replace(prepared.ranking, features=None)})
    alone = browse_queries(result, prepared.dataset.graph, torch.tensor([[0], [3], [5]]))
    assert [len(query[4]) for query in alone["queries"]] == [1, 1, 1]
