"""``graphrerank calibrate checkpoint=CHECKPOINT data=...`` on a few questions."""

import json
import math
from pathlib import Path

import pytest
import torch

from graphrerank.evaluation.reliability import LabelledLists
from graphrerank.fitting.calibrate import _errors, _out_of_fold, _predict, fit_probabilities
from graphrerank.graphs.calibration import LogisticCalibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint, load_primary
from graphrerank.training.calibration import calibration_method
from tests.support.commands import RunCommand
from tests.support.folders import write_films


def _lists(num_queries: int, slope: float, intercept: float, seed: int = 0) -> LabelledLists:
    """Draw scores, and labels by a calibration."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(num_queries, 50, generator=generator).sort(dim=1, descending=True).values * 3
    p = LogisticCalibration(slope=slope, intercept=intercept).probabilities(scores)
    relevant = torch.rand(p.shape, generator=generator) < p
    scores[:, 45:] = -math.inf
    relevant[:, 45:] = False
    return LabelledLists(scores, relevant, relevant.sum(1))


def test_a_few_dozen_questions_mend_a_foreign_calibration() -> None:
    lists = _lists(30, slope=0.8, intercept=-3.0)
    before = _errors(lists, lists.probabilities(LogisticCalibration(slope=0.8, intercept=-1.0)), None)
    p, complete = _out_of_fold(lists, calibration_method("logistic"), with_confidence=False)
    after = _errors(lists, p, complete)
    assert before["ece"] > 0.1
    assert after["ece"] < 0.03
    assert after["ece_top"] < before["ece_top"] / 3
    assert after["brier"] < before["brier"]
    assert torch.equal(p[:, 45:], torch.zeros(30, 5))


def test_forty_questions_mend_a_foreign_confidence() -> None:
    lists, foreign = _lists(40, slope=1.5, intercept=-7.5), ListConfidence(beyond=-0.5, within=0.5, intercept=3.0)
    sure = _errors(lists, *_predict(lists, LogisticCalibration(slope=1.5, intercept=-7.5), foreign))
    mended = _errors(lists, *_out_of_fold(lists, calibration_method("logistic"), with_confidence=True))
    assert sure["ece_PR@5"] > 0.2
    assert mended["ece_PR@5"] < sure["ece_PR@5"] / 2


def test_lists_that_are_never_complete_give_no_confidence() -> None:
    lists = _lists(40, slope=0.8, intercept=-2.0)
    endless = LabelledLists(lists.scores, lists.relevant, lists.num_relevant + 1)
    _, confidence = fit_probabilities({"": endless}, calibration_method("logistic"))
    _, complete = _out_of_fold(endless, calibration_method("logistic"), with_confidence=True)
    assert confidence is None
    assert complete is None


def test_a_part_is_calibrated_without_its_own_labels() -> None:
    lists = _lists(20, slope=1.5, intercept=-7.5)
    turned = lists.relevant.clone()
    turned[::5] = ~turned[::5]  # the first part
    changed = LabelledLists(lists.scores, turned, turned.sum(1))
    whole, found = (
        _out_of_fold(part, calibration_method("isotonic"), with_confidence=True) for part in (lists, changed)
    )
    for before, after in zip(whole, found, strict=True):
        assert torch.equal(after[::5], before[::5])
        assert not torch.equal(after[1::5], before[1::5])


def test_base_for_a_folder(run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    folder, run = write_films(tmp_path / "films", edges=True, judged=True), tmp_path / "run"
    arguments = ("checkpoint=base", "data=folder", f"data.path={folder}", *small_encoder)
    done = run_command("calibrate", *arguments, f"hydra.run.dir={run}")
    manifest = json.loads((run / "manifest.json").read_text())
    fitted = manifest["calibration"]["fitted"]
    assert (fitted["datasets"], fitted["split"], fitted["queries"]) == (["films"], "all judged questions", 12)
    assert fitted["pairs"] == 12 * 24
    assert fitted["share_relevant"] == pytest.approx(2 / 24)
    assert "list_confidence" not in manifest  # too few
    held_out = fitted["held_out"]
    assert held_out["how"] == "cross-validated over 5 parts"
    assert held_out["after"]["ece"] < held_out["before"]["ece"]
    for when in ("before", "after"):
        assert f"{when}: expected calibration error {held_out[when]['ece']:.4f}, of the first 10" in done.stdout
    before, after = load_checkpoint(PRETRAINED / "base").model.state_dict(), load_checkpoint(run).model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert load_primary(run).graph_reranker.calibration == LogisticCalibration.model_validate(manifest["calibration"])

    done = run_command("calibrate", *arguments, "num_queries=10", f"hydra.run.dir={tmp_path / 'again'}")
    assert "fitted on 10 questions" in done.stdout
    assert "(2 questions not used)" in done.stdout


def test_what_is_missing_is_said(run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    folder = write_films(tmp_path / "films", edges=True, judged=True)
    data = ("data=folder", f"data.path={folder}", *small_encoder)
    bare = write_films(tmp_path / "bare", edges=True, judged=False)
    for arguments, message in (
        ((*data, "num_queries=3"), "must be at least 10 of the 12 judged questions of 'all judged questions'"),
        ((*data, "num_queries=13"), "got 13"),
        (("data=folder", f"data.path={bare}", *small_encoder), "'bare' must have judged questions, found no qrels"),
        (("num_queries=20",), "`num_queries` needs the judged queries of a corpus of yours"),
    ):
        done = run_command("calibrate", "checkpoint=base", *arguments, f"hydra.run.dir={tmp_path / 'run'}", status=1)
        assert message in done.stderr
