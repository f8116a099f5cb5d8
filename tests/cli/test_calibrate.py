"""``graphrerank calibrate``: as in the training, and for a corpus with a few judged questions."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.config.components import ComponentFactory
from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset, Qrels
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.metrics import expected_calibration_error
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint, load_primary
from graphrerank.training.calibrate import calibrate_system
from tests.support.commands import RunCommand, manifest_of
from tests.support.folders import write_films


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_training_calibrates_on_validation(trained: Path, system: str) -> None:
    manifest = manifest_of(trained / system)
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


def test_a_finished_checkpoint_is_calibrated_as_its_training_did(
    run_command, trained: Path, small_encoder, tmp_path: Path
) -> None:
    done = run_command("calibrate", f"checkpoint={trained}", *small_encoder, f"hydra.run.dir={tmp_path}")
    *_, of_one, of_lists, together, last = done.stdout.splitlines()
    expected, found = manifest_of(trained / "gatv2"), manifest_of(tmp_path)
    assert found == expected
    error = found["calibration"]["fitted"]["ece"]
    assert found["calibration"]["fitted"]["ece_by_dataset"] == {"attack": error}
    assert of_one == f"attack val: expected calibration error {error:.4f}"
    errors = found["list_confidence"]["fitted"]["ece_by_dataset"]["attack"]
    assert of_lists == "attack val: expected calibration error of lists " + ", ".join(
        f"{measure} {errors[measure]:.4f}" for measure in ("PR@5", "PR@10")
    )
    assert together.startswith(f"all data sets: {error:.4f}, ")
    assert last == str(tmp_path)
    before = load_checkpoint(trained / "gatv2" / "checkpoints" / "best.ckpt").model.state_dict()
    after = load_checkpoint(tmp_path).model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())


def test_base_for_a_folder(run_command: RunCommand, small_encoder: tuple[str, ...], tmp_path: Path) -> None:
    folder, run = write_films(tmp_path / "films", edges=True, judged=True), tmp_path / "run"
    arguments = ("checkpoint=base", "data=folder", f"data.path={folder}", *small_encoder)
    done = run_command("calibrate", *arguments, f"hydra.run.dir={run}")
    manifest = manifest_of(run)
    fitted = manifest["calibration"]["fitted"]
    assert (fitted["datasets"], fitted["split"], fitted["queries"]) == (["films"], "all judged questions", 12)
    assert fitted["pairs"] == 12 * 24
    assert fitted["share_relevant"] == pytest.approx(2 / 24)
    assert "list_confidence" not in manifest  # too few
    held_out = fitted["held_out"]
    assert held_out["how"] == "cross-validated over 5 parts"
    assert held_out["after"]["ece"] < held_out["before"]["ece"]
    for when in ("before", "after"):
        assert f"{when}: expected calibration error {held_out[when]['ece']:.4f}, top 10 only" in done.stdout
    before, after = load_checkpoint(PRETRAINED / "base").model.state_dict(), load_checkpoint(run).model.state_dict()
    assert all(torch.equal(tensor, after[name]) for name, tensor in before.items())
    assert load_primary(run).graph_reranker.calibration == Calibration.model_validate(manifest["calibration"])

    done = run_command("calibrate", *arguments, "num_queries=10", f"hydra.run.dir={tmp_path / 'again'}")
    assert "fitted on 10 questions" in done.stdout
    assert "(2 questions not used)" in done.stdout


def test_what_cannot_be_calibrated_is_refused(
    run_command: RunCommand,
    trained: Path,
    small_encoder: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*arguments: str) -> str:
        done = run_command("calibrate", *arguments, *small_encoder, f"hydra.run.dir={tmp_path / 'run'}", status=1)
        assert not (tmp_path / "run" / "manifest.json").exists()
        return done.stderr

    films, bare = (write_films(tmp_path / name, edges=True, judged=name == "films") for name in ("films", "bare"))
    few, none = (("checkpoint=base", "data=folder", f"data.path={folder}") for folder in (films, bare))
    too_few = refused(*few, "num_queries=3")
    assert "must be from 10 to the number of judged questions of 'all judged questions' (12), got 3" in too_few
    assert "got 13" in refused(*few, "num_queries=13")
    assert "'bare' must have judged questions, but has no qrels" in refused(*none)
    monkeypatch.setattr(ComponentFactory, "prepare", None)  # nothing is encoded
    other = shutil.copytree(trained, tmp_path / "other")
    manifest = manifest_of(other / "gatv2")
    manifest["data"]["fingerprint"] = "0" * 64
    (other / "gatv2" / "manifest.json").write_text(json.dumps(manifest))
    changed = "was trained on data set 'attack' with fingerprint 000000000000, got fingerprint"
    assert changed in refused(f"checkpoint={other}")
    assert "`num_queries` must be null without `data`, got 20" in refused("checkpoint=base", "num_queries=20")


def test_several_data_sets_are_fitted_together() -> None:
    graph = CorpusGraph.from_edges(["a", "b", "c"], ["", "", ""], torch.zeros(0, 2, dtype=torch.int64))
    row, parts = torch.tensor([[0.75, 0.5, 0.25]]), {}
    for relevant, name in enumerate(("one", "two")):
        dataset = Dataset(
            name, graph, ["q"], [""], {"val": Qrels(torch.tensor([0]), torch.tensor([relevant]), torch.ones(1))}
        )
        ranking = Ranking(torch.tensor([[0, 1, 2]]), row, row.unsqueeze(-1))
        parts[name] = PreparedDataset(dataset, None, ranking, ("base_score",))
    entries = calibrate_system(parts, "val", System("base", base_ranking, reads_graph=False))
    found = entries["calibration"]
    assert found["fitted"]["datasets"] == ["one", "two"]
    assert found["fitted"]["pairs"] == 6
    p = Calibration(slope=found["slope"], intercept=found["intercept"]).probabilities(row[0].repeat(2))
    assert found["fitted"]["ece"] == expected_calibration_error(p, torch.tensor([1, 0, 0, 0, 1, 0]))
    assert found["slope"] > 0
    assert set(found["fitted"]["ece_by_dataset"]) == {"one", "two"}
    complete = ListConfidence.model_validate(entries["list_confidence"]).perfect_recall(torch.tensor([0.5, 0.5, 0.0]))
    assert 0 < complete[0] < complete[1] < 1  # of both lists the first two hold what is relevant
    assert entries["list_confidence"]["fitted"]["queries"] == 2
