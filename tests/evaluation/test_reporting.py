from pathlib import Path

import pytest

from graphrerank.evaluation.measuring import EvaluationPlan
from graphrerank.evaluation.reporting import report_dataset, summarize
from graphrerank.evaluation.result import EvaluationResult

PLAN = EvaluationPlan(("PR@10", "nDCG@10"), resamples=200, seed=3)


def test_a_summary_has_the_settings_that_decide_its_numbers(result: EvaluationResult) -> None:
    summary = summarize(result.datasets, PLAN, command="mine", config={"a": 1}, filter={"lang": "de"}, counts={"x": 2})
    assert summary.settings == {
        "ties": "own", "resamples": 200, "level": 0.95, "seed": 3, "filter": '{"lang": "de"}',
    }  # fmt: skip
    assert (summary.command, summary.config, summary.encoder_counts) == ("mine", {"a": 1}, {"x": 2})
    assert {len(one.datasets) for one in summary.across} == {2}
    assert "torch" in summary.versions


def test_a_summary_of_one_data_set_has_no_replications(result: EvaluationResult) -> None:
    summary = summarize({"attack": result.datasets["attack"]}, PLAN, command="mine")
    assert (summary.across, summary.config, "filter" in summary.settings) == ([], {}, False)


def test_a_table_is_printed_and_files_are_written_where_wanted(
    result: EvaluationResult, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Path] = []
    monkeypatch.setattr(EvaluationResult, "save", lambda self, folder: saved.append(folder))
    report_dataset(result, "scifact", show=False)
    assert (capsys.readouterr().out, saved) == ("", [])
    report_dataset(result, "scifact", show=True, run_dir=tmp_path)
    printed = capsys.readouterr().out
    assert "scifact test: 60 queries" in printed
    assert "attack test" not in printed
    assert saved == [tmp_path]
