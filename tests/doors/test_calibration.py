import json
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.data import PreparedDataset, Qrels, RetrievalDataset
from graphrerank.doors.calibration import calibrate_system
from graphrerank.evaluation import System, base_ranking
from graphrerank.graphs import CorpusGraph, Ranking
from graphrerank.graphs.calibration import IsotonicCalibration, read_calibration

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
    assert fitted["brier"] < fitted["share_relevant"] * (1 - fitted["share_relevant"])  # knows more than the share


def test_a_trained_model_gives_probabilities(trained: Path) -> None:
    ranking = GraphReranker.from_pretrained(trained / "gatv2" / "checkpoints" / "best.ckpt").rerank(
        "spreads through USB sticks", PASSAGES, query_vector=[0.0] * 383 + [1.0], vectors=torch.eye(3, 384).tolist()
    )
    expected = read_calibration(_manifest(trained / "gatv2")).probabilities(ranking.scores)
    assert torch.equal(ranking.probabilities, expected)


def test_an_unknown_method_is_refused_before_training(door, small_attack: Path, tmp_path: Path) -> None:
    done = door("train.py", "calibration=magic", f"data.path={small_attack}", f"hydra.run.dir={tmp_path}")
    assert done.returncode != 0
    assert "`calibration` must be one of ['logistic', 'isotonic'] or null, got 'magic'" in done.stderr
    assert not list(tmp_path.glob("*/manifest.json"))


def _toy(scores: list[float], relevant: int) -> PreparedDataset:
    """One query with three candidates."""
    graph = CorpusGraph.from_edges(["a", "b", "c"], ["", "", ""], torch.zeros(0, 2, dtype=torch.int64))
    qrels = Qrels(torch.tensor([0]), torch.tensor([relevant]), torch.ones(1))
    dataset = RetrievalDataset("toy", graph, ["q"], [""], {"val": qrels})
    row = torch.tensor([scores])
    return PreparedDataset(dataset, None, Ranking(torch.tensor([[0, 1, 2]]), row, row.unsqueeze(-1)), ("base_score",))


def test_several_data_sets_are_fitted_together() -> None:
    parts = {"one": _toy([0.75, 0.5, 0.25], relevant=0), "two": _toy([0.75, 0.5, 0.25], relevant=1)}
    found = calibrate_system("isotonic", parts, "val", System("base", base_ranking, reads_graph=False))
    assert read_calibration({"calibration": found}) == IsotonicCalibration((0.25, 0.5, 0.75), (0.0, 0.5, 0.5))
    assert found["fitted"]["datasets"] == ["one", "two"]
    assert (found["fitted"]["pairs"], found["fitted"]["ece"]) == (6, 0.0)
