"""Which system to deploy, on scores whose answer is known."""

from dataclasses import replace
from statistics import NormalDist

import pytest
import torch

from graphrerank.evaluation.decision import (
    DEPLOY,
    DRAFTED,
    KEEP,
    TOO_FEW,
    UNCLEAR,
    against,
    best_line,
    decide,
    num_questions,
    rounded_up,
)
from graphrerank.evaluation.records import DatasetResult, PairedTest, SystemResult
from graphrerank.evaluation.significance import compare_pairs


def table(num_questions: int = 60, *, noise: float = 0.1, drafted: bool = False, **gains: float) -> DatasetResult:
    """A table whose rows have the given gains over the retriever, plus noise per question."""
    generator = torch.Generator().manual_seed(1)
    base = torch.rand(num_questions, generator=generator, dtype=torch.float64)
    rows = {"retriever": base}
    for name, gain in gains.items():
        difference = torch.randn(num_questions, generator=generator, dtype=torch.float64) * noise
        rows[name] = base + gain + difference - difference.mean()
    systems = {
        name: SystemResult(name, "operator", name, {"nDCG@10": values}, {"nDCG@10": (0.0, 1.0)})
        for name, values in rows.items()
    }
    ids = [f"q{number}" for number in range(num_questions)]
    return DatasetResult("mine", "test", "f", ids, ids, [1] * num_questions, systems, ("nDCG@10",), drafted=drafted)


def test_the_best_significant_system_is_deployed_with_its_interval() -> None:
    decision = decide(table(ppr=0.11, base=0.05), resamples=500)
    assert (decision.kind, decision.system, decision.num_more) == (DEPLOY, "ppr", 0)
    assert decision.sentence.startswith("Deploy PPR: nDCG@10 +11.0 points (+")
    assert "over the retriever on your 60 questions, p = " in decision.sentence


def test_a_simpler_system_that_is_not_clearly_behind_is_named() -> None:
    decision = decide(table(ppr=0.1, base=0.105), names={"base": "`base`"}, resamples=500)
    assert decision.sentence.startswith("Deploy `base`: ")
    assert "PPR is simpler and does not differ clearly from it (-0.5 points, p = " in decision.sentence
    assert "simpler" not in decide(table(ppr=0.02, base=0.2), resamples=500).sentence


def test_nothing_gains_on_many_questions() -> None:
    decision = decide(table(400, noise=0.01, ppr=-0.02, base=0.001), resamples=500)
    assert (decision.kind, decision.system) == (KEEP, "retriever")
    assert decision.sentence.startswith("Deploy the retriever: no other system gains noticeably on your 400 questions")


def test_the_retriever_is_deployed_if_nothing_is_ahead() -> None:
    decision = decide(table(15, noise=0.2, ppr=-0.1, base=-0.01), resamples=500)
    assert (decision.kind, decision.system) == (KEEP, "retriever")
    assert decision.sentence.startswith("Deploy the retriever: no other system ranks better on your 15 questions (the ")
    assert "best of them, base: nDCG@10 -1.0 points" in decision.sentence


def test_few_questions_cannot_tell_and_more_would() -> None:
    result = table(15, noise=0.2, ppr=0.04, base=0.02)
    decision = decide(result, resamples=500)
    assert (decision.kind, decision.system) == (UNCLEAR, "ppr")
    assert decision.sentence.startswith(
        "15 questions cannot tell which system is better than the retriever: the best, "
    )
    assert f"About {decision.num_more} more would tell, if this difference stays. Until then" in decision.sentence
    differences = result.systems["ppr"].values["nDCG@10"] - result.systems["retriever"].values["nDCG@10"]
    assert decision.num_more == rounded_up(num_questions(differences, 0.04, num_comparisons=2) - 15)


def test_a_small_difference_is_not_chased() -> None:
    sentence = decide(table(15, noise=0.2, base=0.01), resamples=500).sentence
    assert "more would show a difference of 2 points." in sentence


@pytest.mark.parametrize("count", [1, 4])
def test_a_handful_of_questions_is_too_few(count: int) -> None:
    decision = decide(table(count, base=0.5), resamples=50)
    assert (decision.kind, decision.num_more) == (TOO_FEW, 15 - count)


def test_nothing_is_recommended_on_drafted_questions() -> None:
    decision = decide(table(200, base=0.3, drafted=True), resamples=500)
    assert decision.kind == DRAFTED
    assert decision.sentence.startswith("No recommendation: all 200 questions are drafted")


def test_against_compare_pairs() -> None:
    result = table(ppr=0.1, gcs=-0.1, base=0.05)
    rows = torch.stack([system.values["nDCG@10"] for system in result.systems.values()]).unsqueeze(1)
    expected = compare_pairs(rows, [(0, 1), (2, 1), (3, 1)], resamples=200)
    tests = against(result, "ppr", resamples=200)
    assert [test.system for test in tests] == ["retriever", "gcs", "base"]
    assert [test.p_holm for test in tests] == expected["p_holm"].flatten().tolist()
    assert [list(test.interval) for test in tests] == expected["interval"][:, 0].tolist()


def test_the_number_of_questions_has_the_power_against_simulation() -> None:
    """With that many questions, a z-test shows the difference in about 80% of the samples."""
    generator = torch.Generator().manual_seed(0)
    differences = torch.randn(5_000, generator=generator) * 0.3
    count = num_questions(differences, 0.05)
    samples = 0.05 + torch.randn(4_000, count, generator=generator) * 0.3
    z_scores = samples.mean(1) / (samples.std(1) / count**0.5)
    share = float((z_scores > NormalDist().inv_cdf(0.975)).double().mean())
    assert share == pytest.approx(0.8, abs=0.03)
    assert num_questions(differences, 0.05, num_comparisons=5) > count


def test_the_best_line_names_a_cheap_system_that_is_ahead(dataset: DatasetResult) -> None:
    retriever, ppr, gatv2 = (dataset.systems[name] for name in ("retriever", "ppr", "gatv2"))
    systems = {"retriever": retriever, "ppr": replace(gatv2, kind="operator"), "gatv2": ppr}
    test = PairedTest("gatv2", "ppr", "PR@10", 60, -0.11, (-0.2, -0.01), -1.0, 0.5, 0.01, 0.99, 0.02)
    swapped = replace(dataset, systems=systems, tests=[test])
    assert best_line(swapped) == (
        "best by PR@10: PPR (80.00), +11.0 points over GATv2 (p = 0.01). It needs no training"
    )


def test_the_best_line_names_simpler_systems_that_are_close(dataset: DatasetResult) -> None:
    systems = {name: replace(dataset.systems[name], kind="operator") for name in ("retriever", "ppr", "gatv2")}
    tests = [replace(test, p_holm=0.4) for test in dataset.tests if test.baseline in systems]
    line = best_line(replace(dataset, systems=systems, tests=tests))
    assert line.startswith("best by PR@10: GATv2 (80.00)")
    assert ". Simpler and not clearly behind: retriever (" in line
    tests = [replace(test, p_randomization=0.03, p_holm=0.21) for test in tests]
    line = best_line(replace(dataset, systems=systems, tests=tests))
    assert "p = 0.03, 0.21 after Holm's correction)" in line  # otherwise 0.03 would seem to be clear
    assert best_line(replace(dataset, systems={"a": dataset.systems["gatv2"]})) is None
