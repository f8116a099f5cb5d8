"""Training runs aggregated over their seeds."""

import json
import math
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pytest
from scipy.stats import ttest_ind

from graphrerank.evaluation.seeds import (
    OVERRIDES,
    SeedComparison,
    aggregate_runs,
    compare_groups,
    model_folders,
    read_trained_run,
    welch,
)
from graphrerank.models.manifest import MANIFEST
from graphrerank.utils.checks import UserError

VAL = "val/ndcg@10"
TEST = "ring/test nDCG@10"


def write_run(
    folder: Path, *, seed: int, score: float | None, test: float = 0.5, system: str = "gatv2", mode: str = "max",
    finished: bool = True, overrides: tuple[str, ...] = (), **config: Any,
) -> Path:  # fmt: skip
    """Write the files of a training run that the report reads."""
    manifest = {
        "name": system,
        "finished": finished,
        "config": {"seed": seed, "logger": {"csv": str(folder)}, **config},
        "model": {"name": "gatv2_reranker", "arguments": {}},
        "validation": None if score is None else {"measure": VAL, "mode": mode, "score": score},
        "metrics": {"ring/test": {"nDCG@10": test, "PR@10": None, "R@5": 0.1}},
    }
    (folder / system).mkdir(parents=True)
    (folder / system / MANIFEST).write_text(json.dumps(manifest))
    (folder / OVERRIDES).parent.mkdir(exist_ok=True)
    (folder / OVERRIDES).write_text(json.dumps([f"seed={seed}", *overrides]))  # JSON is YAML
    return folder


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Two losses with three seeds each, on two days."""
    scores = {"bce": [0.50, 0.52, 0.54], "listwise": [0.60, 0.62, 0.61]}
    for loss, by_seed in scores.items():
        for seed, score in enumerate(by_seed, 1):
            folder = tmp_path / ("first" if seed < 3 else "second") / f"{loss}-{seed}"
            overrides = ("features=scores", f"loss={loss}", "paths.runs=somewhere")
            write_run(folder, seed=seed, score=score, test=score - 0.1, overrides=overrides, loss=loss)
    return tmp_path


def test_means_and_deviations_over_seeds_across_days(days: Path) -> None:
    report = aggregate_runs([days / "first", str(days / "second" / "*")])
    assert [group.name for group in report.groups] == ["loss=listwise", "loss=bce"]  # best first
    best = report.groups[0]
    assert sorted(best.seeds) == [1, 2, 3]
    for measure, shift in ((VAL, 0.0), (TEST, 0.1)):
        scores = [score - shift for score in (0.60, 0.62, 0.61)]
        assert best.mean(measure) == pytest.approx(fmean(scores))
        assert best.deviation(measure) == pytest.approx(stdev(scores))
    assert report.measures == [TEST]
    means, differences = report.tables()
    assert [str(cell) for cell in means.rows[0]] == ["GATv2", "loss=listwise", "3", "61.00 ± 1.00", "51.00 ± 1.00"]
    assert str(differences.rows[0][-1]) == "larger than the seeds explain"


def test_against_scipy() -> None:
    first, second = [0.5, 0.6, 0.55, 0.52], [0.61, 0.62, 0.6]
    error, p_value = welch(first, second)
    expected = ttest_ind(first, second, equal_var=False)
    assert p_value == pytest.approx(expected.pvalue)
    assert (fmean(first) - fmean(second)) / error == pytest.approx(expected.statistic)
    assert all(map(math.isnan, welch(first, [0.5])))
    assert welch([0.5, 0.5], [0.5, 0.5]) == (0.0, 1.0)
    assert welch([0.5, 0.5], [0.6, 0.6]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("p_value", "verdict"),
    [
        (0.01, "larger than the seeds explain"),
        (0.2, "the seeds explain it"),
        (math.nan, "one seed cannot tell"),
    ],
)
def test_the_verdict_of_a_comparison(p_value: float, verdict: str) -> None:
    assert SeedComparison("loss=bce", "gatv2", VAL, 0.1, 0.02, p_value).verdict == verdict


def test_p_values_are_corrected_for_the_number_of_groups(days: Path) -> None:
    for seed, score in ((1, 0.57), (2, 0.58)):
        write_run(
            days / "first" / f"ranknet-{seed}", seed=seed, score=score, overrides=("loss=ranknet",), loss="ranknet"
        )
    report = aggregate_runs([days / "first", days / "second"])
    raw = [welch(report.groups[0].scores[VAL], group.scores[VAL])[1] for group in report.groups[1:]]
    low, high = sorted(raw)
    corrected = [test.p_value for test in report.comparisons if test.measure == VAL]
    assert sorted(corrected) == pytest.approx([2 * low, max(2 * low, high)])
    assert compare_groups(report.groups[:1], [VAL]) == []


def test_unfinished_and_unvalidated_runs_are_skipped_and_the_last_of_two_equal_runs_is_used(tmp_path: Path) -> None:
    write_run(tmp_path / "0", seed=1, score=0.2)
    write_run(tmp_path / "1", seed=1, score=0.3)
    write_run(tmp_path / "2", seed=2, score=0.9, finished=False)
    write_run(tmp_path / "3", seed=3, score=None)
    (group,) = aggregate_runs([tmp_path]).groups
    assert (group.seeds, group.scores[VAL]) == ((1,), (0.3,))
    assert read_trained_run(tmp_path / "2" / "gatv2") is None


def test_lower_losses_are_better_and_runs_from_python_are_named_by_their_settings(tmp_path: Path) -> None:
    for seed, (score, rate) in enumerate([(0.5, 0.1), (0.3, 0.2)]):
        write_run(tmp_path / str(seed), seed=seed, score=score, mode="min", module={"rate": rate})
    report = aggregate_runs([tmp_path])
    assert [group.name for group in report.groups] == ["module.rate=0.2", "module.rate=0.1"]
    assert report.comparisons[0].verdict == "one seed cannot tell"


def test_the_report_is_written(days: Path, tmp_path: Path) -> None:
    folder = aggregate_runs([days / "first", days / "second"]).save(tmp_path / "report")
    content = json.loads((folder / "seeds.json").read_text())
    assert content["groups"][0]["mean"] == {VAL: pytest.approx(0.61), TEST: pytest.approx(0.51)}
    assert content["groups"][0]["std"][VAL] == pytest.approx(0.01)
    assert content["comparisons"][0]["verdict"] == "larger than the seeds explain"
    assert "| GATv2 | loss=listwise | 3 | 61.00 ± 1.00 |" in (folder / "report.md").read_text()


def test_paths_without_training_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"`runs` must be folders of training runs.*got '.*nowhere\*'"):
        model_folders([tmp_path / "nowhere*"])
    write_run(tmp_path / "0", seed=1, score=None)
    with pytest.raises(UserError, match="`runs` must have at least one finished training run"):
        aggregate_runs([tmp_path])
