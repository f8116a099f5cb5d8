import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.calibration.logistic import Calibration
from graphrerank.core import Ranking
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.comparisons import compare_dataset
from graphrerank.evaluation.dataset_result import (
    measure_dataset,
    measure_reliability,
    measure_systems,
    score_systems,
)
from graphrerank.evaluation.measuring import EvaluationPlan, measure_ranking
from graphrerank.evaluation.records import Cost, DatasetResult, to_plain
from graphrerank.evaluation.report import dataset_tables
from graphrerank.evaluation.result import EvaluationResult, dataset_metrics
from graphrerank.evaluation.significance import across_datasets, holm, paired_randomization
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, Stage, StageResult
from graphrerank.evaluation.tables import Cell, Table
from tests.evaluation.conftest import NUM_QUERIES, ranked, toy_dataset

PLAN = EvaluationPlan(("nDCG@10", "R@5", "PR@5/multi"), ("nDCG@10", "R@5"), resamples=500)


def judged(data: Dataset, systems: list[RankedSystem], **more: Any) -> DatasetResult:
    return measure_systems(RankedDataset(data, "test", torch.arange(NUM_QUERIES), systems, **more), PLAN)


@pytest.fixture(scope="module")
def result() -> DatasetResult:
    data = toy_dataset()
    base = ranked(data, "base", quality=0.0, seed=1, cost=Cost({"total": {"p50": 1.0, "p95": 2.0}}))
    twin = ranked(data, "twin", quality=0.3, seed=2)
    good = ranked(data, "good", quality=0.6, seed=3)
    other_edges = {"removed": base.ranking, "shuffled": good.ranking}
    return judged(data, [base, twin, replace(good, on_other_edges=other_edges)])


def test_a_stage_adds_measures_groups_notes_and_tables(tmp_path: Path) -> None:
    data = toy_dataset()
    systems = [ranked(data, name, quality=0.2, seed=seed) for seed, name in enumerate(("base", "good"))]
    whole = RankedDataset(data, "test", torch.arange(NUM_QUERIES), systems)
    even = torch.arange(NUM_QUERIES) % 2 == 0

    class Lengths:
        """Scores the even queries by the length of what was ranked."""

        measures, tested = ("Length",), ("Length",)

        def __call__(self, ranked: RankedDataset, *, run_dir: Path | None = None, seed: int = 0) -> StageResult:
            scores = {
                system.name: (system.ranking.nodes >= 0).double().mean(1).masked_fill(~even, torch.nan) * (number + 1)
                for number, system in enumerate(ranked.systems)
            }
            return StageResult(
                {name: {"Length": row} for name, row in scores.items()},
                groups={"parity": {"even": even}},
                notes=["lengths were read"],
                tables=[Table("lengths", ["system", "words"], [[Cell("good"), Cell("7", math.nan)]], printed=True)],
                extra={"lengths": [1, 2]},
                system_extra={"good": {"length": {"words": 7}}},
            )

    stage: Stage = Lengths()
    plan = replace(
        PLAN, measures=("nDCG@10", "Length"), significance_measures=("nDCG@10", "Length"), stage=stage.measures
    )
    result = stage(whole, run_dir=tmp_path)
    found = measure_systems(whole, plan, [result])
    EvaluationResult("evaluate", {"toy": found}).save(tmp_path, report=False)
    again = EvaluationResult.load(tmp_path).datasets["toy"]
    for entry in (found, again):
        assert entry.systems["good"].means["Length"] == 2.0  # the last query, for which nothing is ranked, is odd
        assert {(group.by, group.group, group.measure, group.num_queries) for group in entry.breakdowns} >= {
            ("parity", "even", "Length", 30)
        }
        assert [test.measure for test in entry.tests] == ["nDCG@10", "Length"]
        assert entry.notes[-1] == "lengths were read"
        assert [table.title for table in dataset_tables(entry)][:3] == ["quality", "tests", "lengths"]
        metrics = dataset_metrics(entry)
        assert metrics["lengths"] == [1, 2]
        assert metrics["systems"]["good"]["length"] == {"words": 7}
    with pytest.raises(ValueError, match=r"`measures` \['Length'\] require a stage"):
        measure_systems(whole, plan)


def test_values_are_measured_and_missing_queries_named(result: DatasetResult) -> None:
    data, good = toy_dataset(), result.systems["good"]
    again = measure_ranking(data, data.split("test"), torch.arange(NUM_QUERIES), good.ranking, ["nDCG@10"])
    assert torch.equal(good.values["nDCG@10"], again["nDCG@10"])
    assert (good.missing, good.tied_share, good.cost) == (("q59",), 0.0, None)
    assert good.values["PR@5/multi"][:10].isnan().all()
    assert (result.num_relevant[0], result.num_relevant[-1]) == (1, 2)


def test_tests_of_the_last_system(result: DatasetResult) -> None:
    assert [(test.baseline, test.measure) for test in result.tests] == [
        ("base", "nDCG@10"), ("base", "R@5"), ("twin", "nDCG@10"), ("twin", "R@5"),
    ]  # fmt: skip
    test = result.tests[0]
    ours, theirs = result.systems["good"].values["nDCG@10"], result.systems["base"].values["nDCG@10"]
    assert test.difference == pytest.approx(float((ours - theirs).mean()))
    assert test.p_randomization == float(paired_randomization(ours, theirs, permutations=500))
    assert test.interval[0] < test.difference < test.interval[1]
    corrected = holm(torch.tensor([test.p_randomization for test in result.tests], dtype=torch.float64))
    assert [test.p_holm for test in result.tests] == corrected.tolist()
    assert test.p_greater < 0.01


def test_findings(result: DatasetResult) -> None:
    assert {one.baseline for one in result.query_differences} == {"twin"}  # the best of the others
    groups = {(one.by, one.group): one.num_queries for one in result.breakdowns}
    assert groups["relevant nodes", "1"] == 10
    assert groups["relevant nodes", "2"] == 50
    one = next(entry for entry in result.breakdowns if entry.group == "1")
    assert one.means["good"] == pytest.approx(float(result.systems["good"].values["nDCG@10"][:10].mean()))
    removed, shuffled = result.counterfactuals
    means = {name: system.means["nDCG@10"] for name, system in result.systems.items()}
    assert (removed.edges, removed.mean) == ("removed", means["base"])
    assert removed.difference == pytest.approx(means["good"] - means["base"])
    assert removed.share_changed > 0.9
    assert (shuffled.difference, shuffled.p_randomization, shuffled.share_changed) == (0.0, 1.0, 0.0)


def test_candidates_and_their_ceiling_by_hand() -> None:
    data = toy_dataset()
    qrels, system = data.split("test"), ranked(data, "a", quality=0.0, seed=0)
    first, several = qrels.node[:1], torch.full((NUM_QUERIES, 2), -1)
    several[0, 0] = first[0]  # the one relevant node of the first query
    base = torch.full_like(several, -1)
    candidates = Ranking(several, torch.zeros(NUM_QUERIES, 2), base_nodes=base)
    found = judged(data, [system], candidates=candidates, notes=["candidates: mine"])
    assert (found.candidates, found.ceiling, found.base_ceiling) == (2, 1 / NUM_QUERIES, 0.0)
    assert found.notes == ("candidates: mine",)
    wide = torch.full((NUM_QUERIES, data.graph.num_nodes + 5), -1)  # as of retriever.top_k above the corpus's size
    padded = Ranking(wide, torch.zeros(wide.shape))
    assert judged(data, [system], candidates=padded).candidates == data.graph.num_nodes
    without = judged(data, [system])
    assert (without.candidates, without.ceiling) == (None, None)


def test_across_data_sets(result: DatasetResult) -> None:
    second = toy_dataset(5, "second")
    systems = [
        ranked(second, name, quality=quality, seed=seed)
        for seed, (name, quality) in enumerate({"base": 0.0, "twin": 0.6, "good": 0.6}.items())
    ]
    other = judged(second, systems)
    across = across_datasets([result, other], permutations=500)
    assert across_datasets([result]) == []
    found = {(one.baseline, one.measure): one for one in across}
    won = found["base", "nDCG@10"]
    assert (won.datasets, won.num_replicated) == (("toy", "second"), 2)
    assert won.replicated == ("toy", "second")
    assert won.p_combined < 0.01
    assert won.difference == pytest.approx(
        sum(next(t.difference for t in one.tests if t.baseline == "base") for one in (result, other)) / 2
    )
    twin = found["twin", "nDCG@10"]
    assert (twin.num_replicated, twin.replicated) == (1, ("toy",))


def test_what_does_not_fit_is_refused() -> None:
    data = toy_dataset()
    system = ranked(data, "a", quality=0.0, seed=0)
    with pytest.raises(ValueError, match=r"no duplicate names, got \['a', 'a'\]"):
        judged(data, [system, system])
    with pytest.raises(ValueError, match="must rank 3 queries each, got 60 for a"):
        RankedDataset(data, "test", torch.arange(3), [system])


def test_measuring_compares_nothing_and_comparing_changes_no_score() -> None:
    data = toy_dataset()
    systems = [ranked(data, name, quality=0.3, seed=seed) for seed, name in enumerate(("base", "good"))]
    systems[1] = replace(systems[1], on_other_edges={"removed": systems[0].ranking})
    whole = RankedDataset(data, "test", torch.arange(NUM_QUERIES), systems, notes=["a note"])
    measured = measure_dataset(whole, PLAN)
    assert (measured.tests, measured.counterfactuals, measured.query_differences, measured.breakdowns) == ((),) * 4
    assert measured.notes == ("a note",)
    compared = compare_dataset(measured, whole, PLAN)
    assert compared.systems is measured.systems
    assert [test.measure for test in compared.tests] == ["nDCG@10", "R@5"]
    assert [change.edges for change in compared.counterfactuals] == ["removed"]
    assert to_plain(compared) == to_plain(replace(measure_systems(whole, PLAN), browser=None))


def test_scores_are_those_of_the_plan_in_its_order() -> None:
    data = toy_dataset()
    whole = RankedDataset(data, "test", torch.arange(NUM_QUERIES), [ranked(data, "a", quality=0.3, seed=0)])
    scores = score_systems(whole, PLAN)
    assert {name: list(rows) for name, rows in scores.items()} == {"a": ["nDCG@10", "R@5", "PR@5/multi"]}
    assert all(row.shape == (NUM_QUERIES,) for row in scores["a"].values())


def test_only_calibrated_systems_have_a_reliability() -> None:
    data = toy_dataset()
    plain = ranked(data, "plain", quality=0.3, seed=0)
    calibrated = replace(plain, name="calibrated", calibration=Calibration(slope=3.0, intercept=-3.0))
    whole = RankedDataset(data, "test", torch.arange(NUM_QUERIES), [plain, calibrated])
    records = measure_reliability(whole, data.split("test"))
    assert [record.system for record in records.candidates] == ["calibrated"]
    assert records.lists == []  # no confidence in whole lists
