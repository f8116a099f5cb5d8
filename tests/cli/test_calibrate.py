import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.fitting.calibrate import calibrate_system
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.calibration import IsotonicCalibration, LogisticCalibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.parts import Parts

PASSAGES = ["worm on removable drives", "a cake recipe", "infected USB sticks"]


def _manifest(folder: Path) -> dict:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_training_calibrates_on_validation(trained: Path, system: str) -> None:
    manifest = _manifest(trained / system)
    found = manifest["calibration"]
    assert found["method"] == "logistic"
    assert found["slope"] > 0
    fitted = found["fitted"]
    assert (fitted["datasets"], fitted["split"]) == (["attack"], "val")
    assert 0 < fitted["share_relevant"] < 0.2
    assert fitted["ece"] < 0.05
    lists = manifest["list_confidence"]["fitted"]
    assert (lists["datasets"], lists["split"], set(lists["ece_by_dataset"]["attack"])) == (
        ["attack"], "val", {"PR@5", "PR@10"}
    )  # fmt: skip
    assert fitted["brier"] < fitted["share_relevant"] * (1 - fitted["share_relevant"])  # knows more than the share


def test_a_trained_model_gives_probabilities(trained: Path) -> None:
    ranking = GraphReranker.from_pretrained(trained / "gatv2" / "checkpoints" / "best.ckpt").rerank(
        "spreads through USB sticks", PASSAGES, query_vector=[0.0] * 31 + [1.0], vectors=torch.eye(3, 32).tolist()
    )
    expected = LogisticCalibration.model_validate(_manifest(trained / "gatv2")["calibration"]).probabilities(
        ranking.scores
    )
    assert torch.equal(ranking.probabilities, expected)


def test_a_finished_checkpoint_is_calibrated_as_its_training_did(
    run_command, trained: Path, small_encoder, tmp_path: Path
) -> None:
    done = run_command("calibrate", f"checkpoint={trained}", *small_encoder, f"hydra.run.dir={tmp_path}")
    *_, of_one, of_lists, together, last = done.stdout.splitlines()
    expected, found = _manifest(trained / "gatv2"), _manifest(tmp_path)
    assert found == expected
    error = found["calibration"]["fitted"]["ece"]
    assert found["calibration"]["fitted"]["ece_by_dataset"] == {"attack": error}
    assert of_one == f"attack val: expected calibration error {error:.4f}"
    errors = found["list_confidence"]["fitted"]["ece_by_dataset"]["attack"]
    assert of_lists == "attack val: expected calibration error of lists " + ", ".join(
        f"{measure} {errors[measure]:.4f}" for measure in ("PR@5", "PR@10")
    )
    assert together.startswith(f"together: {error:.4f}, ")
    assert last == str(tmp_path)
    before = load_checkpoint(trained / "gatv2" / "checkpoints" / "best.ckpt").model.state_dict()
    after = load_checkpoint(tmp_path).model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_what_cannot_be_calibrated(
    run_command, trained: Path, small_encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before anything is encoded."""
    monkeypatch.setattr(Parts, "prepare", None)
    other = shutil.copytree(trained, tmp_path / "other")
    manifest = _manifest(other / "gatv2")
    manifest["data"]["fingerprint"] = "0" * 64
    (other / "gatv2" / "manifest.json").write_text(json.dumps(manifest))
    for arguments, message in (
        (
            [f"checkpoint={other}", *small_encoder],
            "was trained on attack with fingerprint 000000000000, the data set is now another one",
        ),
        ([f"checkpoint={trained}", "method=magic"], "must be one of ['logistic', 'isotonic']"),
    ):
        done = run_command("calibrate", *arguments, f"hydra.run.dir={tmp_path / 'run'}", status=1)
        assert message in done.stderr
        assert not (tmp_path / "run" / "manifest.json").exists()


def _toy(scores: list[float], relevant: int) -> PreparedDataset:
    """One query with three candidates."""
    graph = CorpusGraph.from_edges(["a", "b", "c"], ["", "", ""], torch.zeros(0, 2, dtype=torch.int64))
    qrels = Qrels(torch.tensor([0]), torch.tensor([relevant]), torch.ones(1))
    dataset = Dataset("toy", graph, ["q"], [""], {"val": qrels})
    row = torch.tensor([scores])
    return PreparedDataset(dataset, None, Ranking(torch.tensor([[0, 1, 2]]), row, row.unsqueeze(-1)), ("base_score",))


def test_several_data_sets_are_fitted_together() -> None:
    parts = {"one": _toy([0.75, 0.5, 0.25], relevant=0), "two": _toy([0.75, 0.5, 0.25], relevant=1)}
    entries = calibrate_system("isotonic", parts, "val", System("base", base_ranking, reads_graph=False))
    found = entries["calibration"]
    assert IsotonicCalibration.model_validate(found) == IsotonicCalibration(
        knots=(0.25, 0.5, 0.75), shares=(0.0, 0.5, 0.5)
    )
    assert found["fitted"]["datasets"] == ["one", "two"]
    assert (found["fitted"]["pairs"], found["fitted"]["ece"]) == (6, 0.0)
    by_dataset = found["fitted"]["ece_by_dataset"]  # of p = 0.5, 0.5 and 0 one candidate is relevant, on either
    assert by_dataset == {"one": 0.0, "two": 0.0}
    complete = ListConfidence.model_validate(entries["list_confidence"]).perfect_recall(torch.tensor([0.5, 0.5, 0.0]))
    assert 0 < complete[0] < complete[1] < 1  # of both lists the first two hold what is relevant
    assert entries["list_confidence"]["fitted"]["queries"] == 2


def test_lists_that_are_never_complete_leave_no_confidence(capsys: pytest.CaptureFixture[str]) -> None:
    part = _toy([0.75, 0.5, 0.25], relevant=0)
    missed = Qrels(torch.tensor([0, 0]), torch.tensor([0, 3]), torch.ones(2))
    graph = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.zeros(0, 2, dtype=torch.int64))
    part = replace(part, dataset=replace(part.dataset, graph=graph, splits={"val": missed}))
    entries = calibrate_system("logistic", {"one": part}, "val", System("base", base_ranking, reads_graph=False))
    assert list(entries) == ["calibration"]
    assert "base: no list_confidence: `lists` must be complete at some ranks" in capsys.readouterr().out
