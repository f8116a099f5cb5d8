from dataclasses import replace
from typing import Any

import pytest
import torch

from graphrerank.evaluation.compare import compare_runs, metric_differences
from graphrerank.evaluation.records import DatasetResult, SystemResult
from graphrerank.evaluation.result import EvaluationResult

IDS = tuple(f"q{i}" for i in range(40))


def system(name: str, shift: float, *, seed: int = 0) -> SystemResult:
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(len(IDS), generator=generator).double() + shift
    values = {"nDCG@10": score, "R@10": score.round()}
    intervals = dict.fromkeys(values, (0.1, 0.9))
    return SystemResult(name, "checkpoint", "somewhere", values, intervals)


def run(*systems: SystemResult, dataset: str = "toy", **changes) -> EvaluationResult:
    part = DatasetResult(
        name=dataset,
        split="test",
        fingerprint="f" * 64,
        query_ids=IDS,
        query_texts=["text of it"] * len(IDS),
        num_relevant=[1 + i % 2 for i in range(len(IDS))],
        systems={one.name: one for one in systems},
        tested=("nDCG@10",),
        candidates=100,
        ceiling=0.9,
        base_ceiling=0.8,
        notes=["candidates: hybrid"],
    )
    return EvaluationResult("graphrerank evaluate", {dataset: replace(part, **changes)})


BASE = system("retriever", 0.0)


def test_systems_of_one_name_are_one_where_they_score_alike() -> None:
    results = {
        "one": run(BASE, system("gatv2", 0.5)),
        "two": run(BASE, system("mlp", 0.2), system("gatv2", 0.7, seed=1)),
    }
    found = compare_runs(results, command="c", resamples=500).datasets["toy"]
    assert list(found.systems) == ["retriever", "gatv2 (one)", "mlp", "gatv2 (two)"]
    assert found.primary == "gatv2 (two)"
    assert torch.equal(found.systems["mlp"].values["R@10"], system("mlp", 0.2).values["R@10"])
    assert [(t.baseline, t.measure) for t in found.tests] == [(n, "nDCG@10") for n in list(found.systems)[:-1]]
    assert found.tests[0].difference == pytest.approx(
        float((system("gatv2", 0.7, seed=1).values["nDCG@10"] - BASE.values["nDCG@10"]).mean())
    )
    assert found.tests[0].p_holm < 0.05
    for one in found.breakdowns:
        assert list(one.means) == list(found.systems)
    halves = {(one.by, one.group): one for one in found.breakdowns}
    assert list(halves) == [("relevant nodes", "1"), ("relevant nodes", "2")]
    assert halves["relevant nodes", "2"].means["retriever"] == pytest.approx(float(BASE.values["nDCG@10"][1::2].mean()))
    *commands, lacking = found.notes
    assert commands == ["one: graphrerank evaluate", "two: graphrerank evaluate"]
    assert lacking.startswith("no single queries of one, two: the run has no queries.json")
    assert (found.candidates, found.ceiling, found.base_ceiling) == (100, 0.9, 0.8)
    assert {one.system_score for one in found.query_differences}


def test_a_data_set_of_one_run_alone_is_named() -> None:
    one = run(BASE)
    both = EvaluationResult("", {**run(BASE, system("x", 0.1)).datasets, **run(BASE, dataset="other").datasets})
    found = compare_runs({"a": one, "b": both}, command="c", resamples=100)
    assert list(found.datasets) == ["toy"]
    assert found.settings["not in all runs"] == "b: other"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            run(BASE, query_ids=(*IDS[:-1], "new")),
            "a and b must evaluate the same queries of toy, got .*, 39 queries in common",
        ),
        (run(BASE, fingerprint="0" * 64), "got test ffffffffffff, 40 queries and test 0000"),
        (run(BASE, split="val"), "got test ffffffffffff, 40 queries and val ffff"),
        (run(BASE, dataset="scifact"), r"with a data set in common, got \{'a': \['toy'\], 'b': \['scifact'\]\}"),
        (
            run(replace(BASE, values={"R@10": BASE.values["R@10"]}), tested=("R@10",)),
            "must name runs with a tested measure in common",
        ),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other: EvaluationResult, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_runs({"a": run(BASE), "b": other}, command="c", resamples=10)


def test_one_run_and_ties_broken_in_different_ways_are_refused() -> None:
    other = replace(run(BASE), settings={"ties": "trec"})
    with pytest.raises(
        ValueError, match=r"must name runs that break ties in the same way, got \{'a': 'own', 'b': 'trec'\}"
    ):
        compare_runs({"a": run(BASE), "b": other}, command="c", resamples=10)
    with pytest.raises(ValueError, match=r"`report` must name at least two runs, got \['a'\]"):
        compare_runs({"a": run(BASE)}, command="c")


def metrics(mean: float = 0.5, **dataset: object) -> dict[str, Any]:
    systems = {"gatv2": {"PR@10": mean, "missing": 0, "tied_share": 0.1, "cost": {"ms": {}}, "R@5": None}}
    return {"datasets": {"toy": {"split": "test", "queries": 4, "candidates": 9, "systems": systems, **dataset}}}


def test_metrics_that_are_the_same_and_where_they_differ() -> None:
    assert metric_differences(metrics(), metrics(0.5 + 1e-7)) == []
    assert metric_differences(metrics(), metrics(0.25)) == ["toy: gatv2 PR@10: 0.5 expected, 0.25 found"]
    assert metric_differences(metrics(), metrics(queries=5)) == ["toy: queries: 4 expected, 5 found"]
    assert metric_differences(metrics(), metrics(systems={})) == [
        "toy: gatv2 PR@10: 0.5 expected, nothing found",
        "toy: gatv2 R@5: None expected, nothing found",
    ]
