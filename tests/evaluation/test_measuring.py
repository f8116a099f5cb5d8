import math
import random
from dataclasses import replace
from pathlib import Path

import ir_measures
import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.data.run_retriever import read_run
from graphrerank.evaluation.measuring import (
    MIXED_MEASURES,
    PIPELINE_MEASURES,
    RERANKER_MEASURES,
    EvaluationPlan,
    break_ties,
    measure_ranking,
    relevant_nodes,
    tied_share,
)
from graphrerank.metrics import missed_topological_recall, topological_recall

NUM_NODES, NUM_QUERIES = 40, 30
IDS = [f"d{number}" for number in range(NUM_NODES)]  # d10 sorts between d1 and d2
QUERIES = [f"q{number}" for number in range(NUM_QUERIES)]


def searched(seed: int, folder: Path) -> tuple[Dataset, list, Path]:
    """A run of few different scores, so with many ties, in which every fifth query is missing; grades from 1 to 3."""
    rng = random.Random(seed)
    graph = CorpusGraph.from_edges(IDS, [f"text {name}" for name in IDS], torch.tensor([[0, 1], [1, 2]]))
    rows, lines = [], []
    for query, name in enumerate(QUERIES):
        rows += [(query, node, rng.randint(1, 3)) for node in rng.sample(range(NUM_NODES), rng.randint(1, 8))]
        if query % 5:
            ranked = rng.sample(IDS, rng.randint(1, 20))
            lines += [f"{name} Q0 {doc} 0 {rng.randint(0, 5) / 4} x\n" for doc in ranked]
    query, node, gain = (torch.tensor(column) for column in zip(*rows, strict=True))
    dataset = Dataset("random", graph, QUERIES, QUERIES, {"test": Qrels(query, node, gain.float())})
    path = folder / "random.trec"
    path.write_text("".join(lines))
    qrels = [ir_measures.Qrel(QUERIES[query], IDS[node], gain) for query, node, gain in rows]
    return dataset, qrels, path


@pytest.mark.parametrize("seed", range(2))
def test_runs_with_ties_and_missing_queries_against_ir_measures(seed: int, tmp_path: Path) -> None:
    dataset, judgements, path = searched(seed, tmp_path)
    run = read_run(path, query_ids=QUERIES, node_ids=IDS, top_k=100)
    assert (run.nodes[::5] == -1).all()
    assert tied_share(run) > 0.5
    ranking = break_ties(run, IDS, ties="trec")
    names = {
        "nDCG@10": "nDCG@10", "R@5": "R@5", "R@100": "R@100", "MRR": "RR", "AP@10": "AP@10", "P@3": "P@3",
        "SetP": "SetP", "Success@5": "Success@5", "P(rel=2)@5": "P(rel=2)@5", "Rprec": "Rprec",
    }  # fmt: skip
    ours = measure_ranking(dataset, dataset.split("test"), torch.arange(NUM_QUERIES), ranking, list(names))
    assert list(ours) == list(names)
    scored = list(ir_measures.read_trec_run(str(path)))
    for name, oracle in names.items():
        measure = ir_measures.parse_measure(oracle)
        theirs = {one.query_id: one.value for one in ir_measures.iter_calc([measure], judgements, scored)}
        expected = [theirs.get(name, 0.0) for name in QUERIES]
        assert ours[name].tolist() == pytest.approx(expected, abs=1e-6)
        assert float(ours[name].mean()) == pytest.approx(
            ir_measures.calc_aggregate([measure], judgements, scored)[measure], abs=1e-6
        )
        assert ours[name][::5].tolist() == [0.0] * 6  # missing queries count as zero
    corpus_order = measure_ranking(
        dataset, dataset.split("test"), torch.arange(NUM_QUERIES), run, ["nDCG@10"]
    )  # fmt: skip
    assert not torch.allclose(corpus_order["nDCG@10"], ours["nDCG@10"])  # the rule for ties matters here


def test_ties_by_hand() -> None:
    nodes = torch.tensor([[2, 0, 1, -1], [1, 2, 0, -1]])
    scores = torch.tensor([[1.0, 1.0, 0.5, -math.inf], [3.0, -math.inf, -math.inf, -math.inf]])
    ranking = Ranking(nodes, scores)
    assert break_ties(ranking, ["d1", "d10", "d2"], ties="own") is ranking
    broken = break_ties(ranking, ["d2", "d10", "d1"], ties="trec")
    assert broken.nodes.tolist() == [[0, 2, 1, -1], [1, 0, 2, -1]]
    assert broken.scores.tolist()[0] == [1.0, 1.0, 0.5, -math.inf]
    assert tied_share(ranking, top_k=1) == 0.5
    assert tied_share(Ranking(nodes[:, :1], scores[:, :1])) == 0.0


def test_measures_of_the_graph_and_of_answers(tmp_path: Path) -> None:
    dataset, _, _ = searched(0, tmp_path)
    dataset = replace(dataset, answers={"q0": ["d3"], "q1": ["nothing"]})
    qrels, queries = dataset.split("test"), torch.arange(3)
    ranking = Ranking(torch.tensor([[0, 3], [1, 3], [5, 3]]), torch.tensor([[2.0, 1.0]] * 3))
    found = measure_ranking(dataset, qrels, queries, ranking, ["TR", "MissTR@1", "Coverage", "Coverage@1"])
    relevant = relevant_nodes(qrels, queries)
    assert torch.equal(found["TR"], topological_recall(dataset.graph, ranking.nodes, relevant))
    assert torch.equal(found["MissTR@1"], missed_topological_recall(dataset.graph, ranking.nodes[:, :1], relevant))
    assert found["Coverage"][:2].tolist() == [1.0, 0.0]
    assert found["Coverage@1"][:2].tolist() == [0.0, 0.0]
    assert math.isnan(found["Coverage"][2])


def test_what_ir_measures_cannot_compute_is_refused(tmp_path: Path) -> None:
    dataset, _, path = searched(1, tmp_path)
    ranking = read_run(path, query_ids=QUERIES, node_ids=IDS)
    halves = Qrels(torch.tensor([0]), torch.tensor([0]), torch.tensor([0.5]))
    with pytest.raises(ValueError, match=r"require integer judgements, got other numbers for \['AP'\]"):
        measure_ranking(dataset, halves, torch.tensor([0]), ranking.select(torch.tensor([0])), ["AP"])


@pytest.mark.parametrize(
    ("measures", "tested"),
    [
        (RERANKER_MEASURES, ("nDCG@10", "PR@10")),
        (PIPELINE_MEASURES, ("nDCG@10", "CR@10")),
        (MIXED_MEASURES, ("nDCG@10", "PR@10")),
        (("R@7", "R@5"), ("R@7",)),
        (("R@5", "R_cap@10"), ("CR@10",)),
    ],
)
def test_what_is_tested_where_nothing_is_named(measures: tuple[str, ...], tested: tuple[str, ...]) -> None:
    assert EvaluationPlan(measures).significance_measures == tested


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"measures": []}, "must contain at least one measure and no duplicates"),
        ({"measures": ["CR@5", "R_cap@5"]}, r"no duplicates, got \['CR@5', 'R_cap@5'\]"),
        ({"measures": ["Recoll@5"]}, "must be PR@K, .* or an expression of ir_measures, got 'Recoll@5'"),
        ({"measures": ["TR@0"]}, "must be PR@K, .* got 'TR@0'"),
        ({"measures": ["nDCG(judged_only=True)@10"]}, "requires negative judgements"),
        ({"measures": ["Bpref"]}, "'Bpref' requires negative judgements"),
        (
            {"measures": ["R@5"], "significance_measures": ["R@6"]},
            r"`significance_measures` must be a subset of `measures` \['R@5'\], got \['R@6'\]",
        ),
        ({"measures": ["R@5"], "resamples": 0}, "`resamples` must be a positive integer, got 0"),
        ({"measures": ["R@5"], "ties": "random"}, r"`ties` must be one of \['own', 'trec'\], got 'random'"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvaluationPlan(**settings)
