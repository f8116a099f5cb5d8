from dataclasses import replace

import pytest
import torch

from graphrerank.evaluation.compare_runs import compare_runs
from graphrerank.evaluation.findings import Breakdown, HubBias
from graphrerank.evaluation.study import DatasetStudy, Study, SystemStudy

IDS = tuple(f"q{i}" for i in range(40))


def system(name: str, shift: float, *, seed: int = 0) -> SystemStudy:
    generator = torch.Generator().manual_seed(seed)
    score = torch.rand(len(IDS), generator=generator).double() + shift
    values = {"nDCG@10": score, "R@10": score.round()}
    intervals = dict.fromkeys(values, (0.1, 0.9))
    return SystemStudy(name, "checkpoint", "somewhere", values, intervals, config="same", seed=seed)


def run(*systems: SystemStudy, dataset: str = "toy", **changes) -> Study:
    part = DatasetStudy(
        name=dataset,
        split="test",
        fingerprint="f" * 64,
        query_ids=IDS,
        query_texts=[f"text of {name}" for name in IDS],
        num_relevant=[1] * len(IDS),
        systems={one.name: one for one in systems},
        tested=("nDCG@10",),
        breakdowns=[Breakdown("query length", "2 words", 40, "nDCG@10", {one.name: 0.5 for one in systems})],
        hub_bias=[HubBias(one.name, 0.1, 0.0, 1.0, 1.0, 9) for one in systems],
    )
    return Study("python evaluate.py", {dataset: replace(part, **changes)})


BASE = system("base_ranking", 0.0)


def test_systems_of_one_name_are_one_where_they_score_alike() -> None:
    studies = {
        "one": run(BASE, system("gatv2", 0.5)),
        "two": run(BASE, system("mlp", 0.2), system("gatv2", 0.7, seed=1)),
    }
    found = compare_runs(studies, command="c", resamples=500).datasets["toy"]
    assert list(found.systems) == ["base_ranking", "gatv2 (one)", "mlp", "gatv2 (two)"]
    assert found.primary == "gatv2 (two)"
    assert torch.equal(found.systems["mlp"].values["R@10"], system("mlp", 0.2).values["R@10"])
    assert [(t.baseline, t.measure) for t in found.tests] == [(n, "nDCG@10") for n in list(found.systems)[:-1]]
    assert found.tests[0].difference == pytest.approx(
        float((system("gatv2", 0.7, seed=1).values["nDCG@10"] - BASE.values["nDCG@10"]).mean())
    )
    assert found.tests[0].p_holm < 0.05
    assert [one.system for one in found.hub_bias] == ["base_ranking", "gatv2 (one)", "mlp", "gatv2 (two)"]
    assert [list(one.means) for one in found.breakdowns] == [["base_ranking", "gatv2 (one)", "mlp", "gatv2 (two)"]]
    assert {one.system_score for one in found.query_differences}
    assert found.seed_spreads[0].systems == ("base_ranking", "gatv2 (one)", "mlp", "gatv2 (two)")


def test_a_data_set_of_one_run_alone_is_named() -> None:
    one = run(BASE)
    both = Study("", {**run(BASE, system("x", 0.1)).datasets, **run(BASE, dataset="other").datasets})
    found = compare_runs({"a": one, "b": both}, command="c", resamples=100)
    assert list(found.datasets) == ["toy"]
    assert found.settings["not in all runs"] == "b: other"


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            run(BASE, query_ids=(*IDS[:-1], "new")),
            r"a and b judge different queries of toy: 40 and 40, 39 in both; 'new' is in one",
        ),
        (run(BASE, query_ids=tuple(reversed(IDS))), "judge other data under the name of toy"),
        (run(BASE, fingerprint="0" * 64), "judge other data under the name of toy: test ffffffffffff and test 000"),
        (run(BASE, split="val"), "judge other data under the name of toy: test ffffffffffff and val ffffffffffff"),
        (run(BASE, dataset="scifact"), r"over one data set at least, got \{'a': \['toy'\], 'b': \['scifact'\]\}"),
        (
            run(replace(BASE, values={"R@10": BASE.values["R@10"]}), tested=("R@10",)),
            "must name runs that test one measure at least",
        ),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other: Study, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        compare_runs({"a": run(BASE), "b": other}, command="c", resamples=10)


def test_ties_that_were_broken_in_different_ways_are_refused() -> None:
    other = replace(run(BASE), settings={"ties": "trec"})
    with pytest.raises(ValueError, match=r"must name runs that break ties alike, got \{'a': 'own', 'b': 'trec'\}"):
        compare_runs({"a": run(BASE), "b": other}, command="c", resamples=10)


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(ValueError, match=r"`report` must name two runs or more, got \['a'\]"):
        compare_runs({"a": run(BASE)}, command="c")
