import csv
from io import StringIO
from typing import Any

import networkx as nx
import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_types import REFERENCE, SIMILARITY
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.diagnosis import (
    DRAFTED,
    HEADER,
    WITH,
    WITHOUT,
    GraphShape,
    TypeDensity,
    chosen_queries,
    graph_shape,
    pool_csv,
    verdict,
)
from graphrerank.evaluation.records import Counterfactual, DatasetResult, PairedTest, SystemResult


def paired(difference: float, p: float, baseline: str = WITHOUT, half_width: float = 0.02) -> PairedTest:
    return PairedTest(
        system=WITH, baseline=baseline, measure="nDCG@10", num_queries=80, difference=difference,
        interval=(difference - half_width, difference + half_width), effect_size=0.3, share_changed=0.5,
        p_randomization=p, p_greater=p / 2, p_holm=p,
    )  # fmt: skip


def changed(edges: str, difference: float, p: float) -> Counterfactual:
    return Counterfactual(WITH, edges, "nDCG@10", 0.5, difference, (difference - 0.01, difference + 0.01), p, 0.8)


def system(name: str, mean: float) -> SystemResult:
    return SystemResult(name, "operator", name, {"nDCG@10": torch.tensor([mean], dtype=torch.float64)}, {})


def result(difference: float = 0.05, p: float = 0.001, *, half_width: float = 0.02, **fields: Any) -> DatasetResult:
    means = {"retriever": 0.4, WITHOUT: 0.45, WITH: 0.5}
    return DatasetResult(
        name="mine",
        split="test",
        fingerprint="f",
        query_ids=["q"],
        query_texts=["a question"],
        num_relevant=[1],
        systems={name: system(name, mean) for name, mean in means.items()},
        tested=("nDCG@10",),
        tests=[paired(0.1, 0.001, "retriever"), paired(difference, p, half_width=half_width)],
        **{
            "base_ceiling": 0.8,
            "ceiling": 0.8,
            "counterfactuals": [changed("shuffled", 0.04, 0.001), changed("removed", 0.05, 0.001)],
            **fields,
        },
    )


HARMFUL = [changed("shuffled", 0.04, 0.001), changed("without reference", 0.03, 0.01),
           changed("without similarity", -0.02, 0.01)]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kind", "sentence", "step"),
    [
        ({"questions": DRAFTED}, "drafted", "bound to help", "graphrerank judge"),
        ({}, "helps", "The graph helps: nDCG@10 +5.00 (+3.0 to +7.0), p = 0.001.", "data.drafted=1500"),
        ({"counterfactuals": HARMFUL}, "helps", "", "type similarity, without which the ranking is better"),
        ({"difference": -0.05, "counterfactuals": HARMFUL}, "hurts", "", "similarity first"),
        ({"difference": -0.05}, "hurts", "", "retriever=hybrid"),
        (
            {"counterfactuals": [changed("shuffled", 0.01, 0.4)]},
            "helps, as other edges do",
            "not by which passages it joins",
            "",
        ),
        ({"counterfactuals": [changed("shuffled", -0.02, 0.001)]}, "helps, as other edges do", "", ""),
        (
            {"difference": 0.03, "p": 0.2, "half_width": 0.05},
            "unclear",
            "80 questions do not tell whether the graph helps: nDCG@10 +3.00 (-2.0 to +8.0), p = 0.2.",
            "Judge more questions",
        ),
        ({"difference": -0.01, "p": 0.4, "half_width": 0.05}, "unclear", "", "take other edges"),
        ({"difference": 0.001, "p": 0.6, "half_width": 0.005}, "no help", "", "data.edges=auto"),
        (
            {"difference": 0.001, "p": 0.6, "half_width": 0.005, "ceiling": 0.9},
            "no help",
            "",
            "90.0% of the questions, 80.0% before",
        ),
        ({"difference": 0.0, "p": 1.0, "half_width": 0.0}, "no help", "", ""),
    ],
)
def test_verdicts(given: dict[str, Any], kind: str, sentence: str, step: str) -> None:
    questions = given.pop("questions", "split test")
    found = verdict(result(**given), questions)
    assert found.kind == kind
    assert sentence in found.sentence
    assert step in found.next_step


def test_a_type_whose_cost_is_unclear_is_not_named() -> None:
    unclear = [*HARMFUL[:2], changed("without similarity", -0.02, 0.3)]
    assert "similarity" not in verdict(result(counterfactuals=unclear), "split test").next_step


def test_the_shape_in_lines() -> None:
    shape = GraphShape(10, (TypeDensity("similarity", 5, 1.0, 0.5),), 0.1)
    assert shape.lines() == [
        "similarity: 5 edges, 1.00 neighbours of a passage, 50.0% of the passages have one",
        "10 passages, 10.0% without an edge",
    ]


@pytest.mark.parametrize("seed", range(3))
def test_against_networkx(seed: int) -> None:
    pairs = torch.randint(0, 40, (30, 2), generator=torch.Generator().manual_seed(seed))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    types = torch.tensor([REFERENCE, SIMILARITY])[torch.arange(len(pairs)) % 2]
    graph = CorpusGraph.from_edges([str(i) for i in range(40)], [""] * 40, pairs, edge_type=types)
    shape = graph_shape(graph)
    whole = nx.Graph()
    whole.add_nodes_from(range(40))
    whole.add_edges_from(pairs.tolist())
    assert shape.share_isolated == pytest.approx(len(list(nx.isolates(whole))) / 40)
    assert [entry.edges for entry in shape.types] == ["reference", "similarity"]
    for number, entry in enumerate(shape.types):
        own = nx.Graph(pairs[number::2].tolist())
        assert entry.pairs == own.number_of_edges()
        assert entry.mean_neighbours == pytest.approx(2 * own.number_of_edges() / 40)
        assert entry.share_joined == pytest.approx(own.number_of_nodes() / 40)


def test_entities_join_passages() -> None:
    names = [["a"], ["a", "b"], ["b"], ["c"], []]
    graph = CorpusGraph.from_edges(list("vwxyz"), [""] * 5, torch.tensor([[3, 4]]))
    shape = graph_shape(graph.with_entities(EntityIncidence.from_names(names, max_share=1.0)))
    assert [entry.edges for entry in shape.types] == ["entity", "other"]
    assert (shape.types[0].pairs, shape.types[0].share_joined) == (2, 0.6)
    assert shape.share_isolated == 0.0


TEXTS = ['one, "quoted"', "two\nlines", "=SUM(A1)", "four", "five"]


def unjudged(num_queries: int = 2) -> Dataset:
    graph = CorpusGraph.from_edges(list("abcde"), TEXTS, torch.zeros(0, 2))
    ids = [f"q{number}" for number in range(num_queries)]
    return Dataset("mine", graph, ids, [f"-question {name}" for name in ids], {})


def ranking(*rows: list[int]) -> Ranking:
    nodes = torch.tensor(rows)
    return Ranking(nodes, torch.zeros_like(nodes).float())


def test_the_first_of_each_ranking_once() -> None:
    found = [ranking([0, 1, 4], [3, -1, -1]), ranking([2, 0, 3], [4, 3, 2])]
    rows = list(csv.reader(StringIO(pool_csv(unjudged(), torch.tensor([1, 0]), found, depth=2))))
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
    assert pool_csv(unjudged(), queries, [one]) == pool_csv(unjudged(), queries, [other])
    rows = list(csv.reader(StringIO(pool_csv(unjudged(), queries, [one]))))[1:]
    assert [row[1] for row in rows] != sorted(row[1] for row in rows)


def test_questions_are_chosen_whatever_their_order() -> None:
    data = unjudged(30)
    chosen = chosen_queries(data, 8).tolist()
    assert len(chosen) == 8
    assert chosen == sorted(chosen)
    assert chosen != list(range(8))
    assert chosen_queries(unjudged(3), 8).tolist() == [0, 1, 2]
