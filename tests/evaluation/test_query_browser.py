"""Single queries of the report, on six passages whose edges have two types."""

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation import query_browser
from graphrerank.evaluation.compare import compare_runs
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.query_browser import browse_queries, edges_between, first_queries
from graphrerank.evaluation.records import QueryBrowser, to_plain
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.systems import RankedDataset, RankedSystem

EDGES, TYPES = [[0, 1], [0, 1], [1, 2], [3, 4], [0, 5], [2, 5]], [0, 1, 0, 3, 1, 0]
NODES = {
    "retriever": [[0, 1, 2], [3, 4, -1], [5, 0, 1]],
    "bm25": [[-1, -1, -1], [3, 0, -1], [0, 1, 2]],
    "gatv2": [[2, 1, 0], [4, 3, -1], [5, 1, 3]],
}


@pytest.fixture
def ranked() -> RankedDataset:
    texts = [f"{name}\n <b>text</b>" for name in "abcdef"]
    graph = CorpusGraph.from_edges(list("abcdef"), texts, torch.tensor(EDGES), edge_type=torch.tensor(TYPES))
    qrels = Qrels(torch.tensor([0, 0, 1, 2]), torch.tensor([2, 4, 4, 5]), torch.ones(4))
    dataset = Dataset("toy", graph, ["q1", "q2", "q3"], ["one", "two", "three"], {"test": qrels})
    scores = torch.arange(3, 0, -1).float().expand(3, 3)
    systems = [
        RankedSystem(name, "checkpoint", name, Ranking(torch.tensor(nodes), scores)) for name, nodes in NODES.items()
    ]
    return RankedDataset(dataset, "test", torch.arange(3), systems)


@pytest.fixture
def browser(ranked: RankedDataset) -> QueryBrowser:
    browser = measure_systems(ranked, EvaluationPlan(["R@1"], resamples=50)).browser
    assert browser is not None
    return browser


def test_queries_that_differ_most_come_first(browser: QueryBrowser) -> None:
    """R@1 of the best other system, the retriever: 0, 0, 1; of the last system: .5, 1, 1."""
    assert (browser.systems, browser.baseline, browser.measure) == (list(NODES), 0, "R@1")
    assert [(query.query_id, query.query_text, query.num_relevant, query.scores) for query in browser.queries] == [
        ("q2", "two", 1, [0.0, 0.0, 1.0]), ("q1", "one", 2, [0.0, 0.0, 0.5]), ("q3", "three", 1, [1.0, 0.0, 1.0])
    ]  # fmt: skip


def test_every_system_shows_what_it_ranked_first(browser: QueryBrowser) -> None:
    ids = [node_id for node_id, _ in browser.passages]
    shown = {query.query_id: ["".join(ids[p] for p in row) for row in query.rankings] for query in browser.queries}
    assert shown == {"q1": ["abc", "", "cba"], "q2": ["de", "da", "ed"], "q3": ["fab", "abc", "fbd"]}
    relevant = {query.query_id: [ids[p] for p in query.relevant] for query in browser.queries}
    assert relevant == {"q1": ["c"], "q2": ["e"], "q3": ["f"]}  # d of q1 is in no list
    assert browser.passages[0] == ("a", "a <b>text</b>")


def test_edges_are_between_the_passages_of_a_query_with_their_types(browser: QueryBrowser) -> None:
    ids = [node_id for node_id, _ in browser.passages]
    edges = {
        query.query_id: sorted(f"{ids[a]}{ids[b]}{kind}" for a, b, kind in query.edges) for query in browser.queries
    }
    assert edges == {"q1": ["ab0", "ab1", "bc0"], "q2": ["de3"], "q3": ["ab0", "ab1", "af1", "bc0", "cf0"]}
    assert browser.edge_types == {0: "reference", 1: "entity", 3: "similarity"}


def test_against_a_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, 20, (80, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    types = torch.randint(0, 3, (len(edges),), generator=generator)
    graph = CorpusGraph.from_edges([str(node) for node in range(20)], [""] * 20, edges, edge_type=types)
    nodes = [sorted(torch.randperm(20, generator=generator)[:size].tolist()) for size in (7, 0, 12)]
    joined = {(min(a, b), max(a, b), kind) for (a, b), kind in zip(edges.tolist(), types.tolist(), strict=True)}
    expected = [sorted(edge for edge in joined if set(edge[:2]) <= set(row)) for row in nodes]
    assert [sorted(row) for row in edges_between(graph, nodes)] == expected
    assert edges_between(graph, [[], []]) == [[], []]


def test_the_number_of_queries_is_bounded(ranked: RankedDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    result = measure_systems(ranked, EvaluationPlan(["R@1"], resamples=50))
    monkeypatch.setattr(query_browser, "MAX_BROWSED", 2)
    monkeypatch.setattr(query_browser, "EDGE_QUERIES", 2)
    whole = browse_queries(result, ranked)
    assert [query.query_id for query in whole.queries] == ["q2", "q1", "q3"]
    few = first_queries(whole)
    assert [query.query_id for query in few.queries] == ["q2", "q1"]
    assert [name for name, _ in few.passages] == ["a", "b", "c", "d", "e"]  # f is only shown for q3
    assert few.edge_types == {0: "reference", 1: "entity", 3: "similarity"}
    for one, other in zip(whole.queries, few.queries, strict=False):
        for browser, query in ((whole, one), (few, other)):
            assert [[browser.passages[p][0] for p in row] for row in query.rankings] == [
                [whole.passages[p][0] for p in row] for row in one.rankings
            ]
    monkeypatch.setattr(query_browser, "TOP", 1)
    assert [len(row) for row in browse_queries(result, ranked).queries[0].rankings] == [1, 1, 1]


def test_one_system_alone(ranked: RankedDataset) -> None:
    alone = replace(ranked, systems=ranked.systems[:1])
    browser = measure_systems(alone, EvaluationPlan(["R@1"], resamples=50)).browser
    assert browser is not None
    assert (browser.systems, browser.baseline, len(browser.queries)) == (["retriever"], 0, 3)


@pytest.fixture
def saved(ranked: RankedDataset, tmp_path: Any) -> EvaluationResult:
    result = measure_systems(ranked, EvaluationPlan(["R@1"], resamples=50))
    saved = EvaluationResult("graphrerank evaluate", {"toy": result})
    saved.save(tmp_path / "run", report=False)
    return saved


def test_a_result_that_was_read_shows_its_queries(saved: EvaluationResult, tmp_path: Any) -> None:
    """``result.json`` keeps its format. Runs of older versions have no other file."""
    assert '"browser"' not in (tmp_path / "run" / "result.json").read_text()
    loaded = EvaluationResult.load(tmp_path / "run")
    assert to_plain(loaded.datasets["toy"].browser) == to_plain(saved.datasets["toy"].browser)
    assert "<summary>Query by query</summary>" in loaded.html()
    (tmp_path / "run" / "queries.json").unlink()
    old = EvaluationResult.load(tmp_path / "run")
    assert old.datasets["toy"].browser is None
    assert "<summary>Query by query</summary>" not in old.html()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda toy: toy.update(systems=["x"]), "the systems must be"),
        (lambda toy: toy.update(queries=toy["queries"][1:]), "the queries must be the 3 queries"),
        (lambda toy: toy["queries"][0]["rankings"][0].append(99), "a ranking of known passages"),
        (lambda toy: toy["queries"][0]["rankings"][0].append(-1), "a ranking of known passages"),
        (lambda toy: toy["queries"][0]["rankings"].pop(), "a ranking of known passages"),
        (lambda toy: toy["queries"][0].update(edges=[[0, 1, 4]]), "edges of known types"),
        (lambda toy: toy.update(edge_types={"0": "<b>"}), "the edge types must be in"),
        (lambda toy: toy.update(passages=3), "passages"),
        (lambda toy: toy.pop("measure"), "measure"),
    ],
)
def test_damaged_queries_are_refused(saved: EvaluationResult, tmp_path: Any, change: Any, message: str) -> None:
    file = tmp_path / "run" / "queries.json"
    content = json.loads(file.read_text())
    change(content["datasets"]["toy"])
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=f"queries.json is not a valid list of queries .*{message}"):
        EvaluationResult.load(tmp_path / "run")


def test_a_comparison_of_runs_has_the_queries_of_both(
    ranked: RankedDataset, saved: EvaluationResult, tmp_path: Any
) -> None:
    """The systems of the first run, and one of another run that ranks f first for q1."""
    other = RankedSystem("new", "checkpoint", "new", Ranking(torch.tensor([[5, 2, 0]] * 3), torch.ones(3, 3)))
    result = measure_systems(
        replace(ranked, systems=[*ranked.systems[:1], other]), EvaluationPlan(["R@1"], resamples=50)
    )
    EvaluationResult("graphrerank evaluate", {"toy": result}).save(tmp_path / "other", report=False)
    runs = {name: EvaluationResult.load(tmp_path / name) for name in ("run", "other")}
    compared = compare_runs(runs, command="report", resamples=50).datasets["toy"]
    browser = compared.browser
    assert browser is not None
    assert list(browser.systems) == [*list(NODES)[:1], *list(NODES)[1:], "new"]
    ids = [name for name, _ in browser.passages]
    (first,) = [query for query in browser.queries if query.query_id == "q1"]
    assert ["".join(ids[p] for p in row) for row in first.rankings] == ["abc", "", "cba", "fca"]
    assert [ids[p] for p in first.relevant] == ["c"]
    edges = sorted(f"{ids[a]}{ids[b]}{browser.edge_types[kind][0]}" for a, b, kind in first.edges)
    assert edges == ["abe", "abr", "afe", "bcr", "cfr"]
    assert first.scores == [0.0, 0.0, 0.5, 0.0]
    page = EvaluationResult("report", {"toy": compared}).html()
    assert "<summary>Query by query</summary>" in page
    assert any("only different runs ranked" in note for note in compared.notes)

    (tmp_path / "other" / "queries.json").unlink()
    runs["other"] = EvaluationResult.load(tmp_path / "other")
    half = compare_runs(runs, command="report", resamples=50).datasets["toy"]
    assert half.browser is not None
    assert [list(query.rankings[-1]) for query in half.browser.queries] == [[]] * 3
    assert any("no single queries of other: the run has no queries.json" in note for note in half.notes)
    (tmp_path / "run" / "queries.json").unlink()
    runs["run"] = EvaluationResult.load(tmp_path / "run")
    assert compare_runs(runs, command="report", resamples=50).datasets["toy"].browser is None
