"""A calibrated model gives probabilities beside its scores, through every form that it can be loaded from."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.graphs.calibration import IsotonicCalibration, LogisticCalibration
from graphrerank.graphs.list_confidence import ListConfidence
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint, save_weights
from graphrerank.models.manifest import write_manifest
from graphrerank.serving.artifact import load_artifact
from graphrerank.serving.export import export_artifact
from graphrerank.serving.rerank_engine import RerankEngine
from graphrerank.serving.rerank_request import RerankRequest

PASSAGES = ["the red book", "a green pear", "who is who", "the author wrote it"]
LOGISTIC, ISOTONIC = (
    LogisticCalibration(slope=0.7, intercept=-1.0),
    IsotonicCalibration(knots=(-1.0, 1.0), shares=(0.25, 0.25)),
)
CONFIDENCE = ListConfidence(beyond=-1.0, within=0.5, intercept=-0.5)


def calibrated(make_checkpoint, calibration):
    checkpoint = make_checkpoint()
    return replace(
        checkpoint, manifest=checkpoint.manifest.with_entries(calibration=calibration.model_dump(mode="json"))
    )


@pytest.mark.parametrize("calibration", [LOGISTIC, ISOTONIC])
def test_the_order_is_that_of_the_scores(make_checkpoint, calibration) -> None:
    plain = GraphReranker(make_checkpoint()).rerank("red book", PASSAGES, edges=[(0, 3)], ids=list("abcd"))
    ranking = GraphReranker(calibrated(make_checkpoint, calibration)).rerank(
        "red book", PASSAGES, edges=[(0, 3)], ids=list("abcd")
    )
    assert plain.probabilities is None
    assert list(ranking) == list(plain)
    assert torch.equal(ranking.probabilities, calibration.probabilities(plain.scores))
    assert torch.equal(ranking[1:3].probabilities, ranking.probabilities[1:3])


def test_an_artifact_and_a_checkpoint_keep_the_calibration(make_checkpoint, tmp_path: Path) -> None:
    checkpoint = calibrated(make_checkpoint, LOGISTIC)
    checkpoint = replace(
        checkpoint, manifest=checkpoint.manifest.with_entries(list_confidence=CONFIDENCE.model_dump(mode="json"))
    )
    save_weights(tmp_path / "folder", checkpoint.model)
    write_manifest(tmp_path / "folder", checkpoint.manifest.content)
    export_artifact(checkpoint, tmp_path / "artifact")
    ranking = GraphReranker(checkpoint).rerank("red book", PASSAGES)
    expected, complete = ranking.probabilities, ranking.perfect_recall
    assert torch.equal(complete, CONFIDENCE.perfect_recall(expected))
    for name in ("folder", "artifact"):
        found = GraphReranker.from_pretrained(tmp_path / name).rerank("red book", PASSAGES)
        torch.testing.assert_close(found.probabilities, expected)
        torch.testing.assert_close(found.perfect_recall, complete)
    request = RerankRequest(query="red book", documents=PASSAGES, explain=True)
    served = RerankEngine(load_artifact(tmp_path / "artifact")).rerank({"a": request})["a"]
    probabilities = [result.explanation.probability for result in served.results]
    assert probabilities == pytest.approx(expected.tolist(), abs=1e-5)
    assert [result.relevance_score for result in served.results] == probabilities
    assert served.perfect_recall is None  # not asked for
    request = RerankRequest(query="red book", documents=PASSAGES, top_n=2, return_confidence=True)
    served = RerankEngine(load_artifact(tmp_path / "artifact")).rerank({"a": request})["a"]
    assert served.perfect_recall == pytest.approx(complete[:2].tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["base", "base-1", "attack"])
def test_a_shipped_model_was_calibrated_on_validation_splits_of_what_it_was_trained_on(name: str) -> None:
    manifest = load_checkpoint(PRETRAINED / name).reranker
    fitted = manifest.content["calibration"]["fitted"]
    assert fitted["split"] == manifest.val_split == "val"
    before = {} if manifest.start is None else manifest.start.trained_on  # whose calibration was kept
    parts = before or manifest.trained_on
    made = {name for name, entry in parts.items() if entry.arguments.get("drafted")} | {"attack_paths"}
    assert set(fitted["datasets"]) == (parts.keys() - made or parts.keys())
    ranking = GraphReranker.from_pretrained(name).rerank("red book", PASSAGES, edges=[(0, 3)])
    assert torch.equal(ranking.probabilities, manifest.calibration.probabilities(ranking.scores))
    assert list(ranking.probabilities) == sorted(ranking.probabilities, reverse=True)
    assert 0 < ranking.probabilities.min() < ranking.probabilities.max() < 1


def test_a_broken_calibration_is_refused_when_the_model_is_loaded(make_checkpoint, tmp_path: Path) -> None:
    broken = {"method": "logistic", "slope": -1.0, "intercept": 0.0}
    save_weights(tmp_path, make_checkpoint().model)
    write_manifest(tmp_path, {**make_checkpoint().manifest.content, "calibration": broken})
    with pytest.raises(
        ValueError, match=r"manifest\.json: .*`calibration\.logistic\.slope`: .* greater than or equal to 0"
    ):
        GraphReranker.from_pretrained(tmp_path)


def test_a_list_ends_where_the_probabilities_say(make_checkpoint, tmp_path: Path) -> None:
    checkpoint = calibrated(make_checkpoint, LOGISTIC)
    export_artifact(checkpoint, tmp_path / "without")
    checkpoint = replace(
        checkpoint, manifest=checkpoint.manifest.with_entries(list_confidence=CONFIDENCE.model_dump(mode="json"))
    )
    export_artifact(checkpoint, tmp_path / "artifact")
    reranker = GraphReranker(checkpoint)
    whole = reranker.rerank("red book", PASSAGES)
    least = float(whole.probabilities[1])
    assert float(whole.probabilities[2]) < least
    cut = reranker.rerank("red book", PASSAGES, min_probability=least)
    assert list(cut) == list(whole)[:2]
    assert torch.equal(cut.perfect_recall, whole.perfect_recall)  # counts what was left out
    assert list(reranker.rerank("red book", PASSAGES, min_probability=least, top_n=1)) == list(whole)[:1]
    assert list(reranker.rerank("red book", PASSAGES, min_probability=1.0)) == []
    enough = float(whole.perfect_recall[2])
    assert list(reranker.rerank("red book", PASSAGES, min_perfect_recall=enough)) == list(whole)[:3]
    request = RerankRequest(query="red book", documents=PASSAGES, min_probability=least - 1e-6, return_confidence=True)
    served = RerankEngine(load_artifact(tmp_path / "artifact")).rerank({"a": request})["a"]
    assert [result.index for result in served.results] == cut.indices.tolist()
    assert len(served.perfect_recall) == 2
    with pytest.raises(ValueError, match=r"`min_perfect_recall` needs a model with `list_confidence`"):
        RerankEngine(load_artifact(tmp_path / "without")).rerank(
            {"a": RerankRequest(query="red book", documents=PASSAGES, min_perfect_recall=0.5)}
        )
    with pytest.raises(ValueError, match="`min_probability` needs a calibrated model"):
        GraphReranker(make_checkpoint()).rerank("red book", PASSAGES, min_probability=0.5)
    with pytest.raises(ValueError, match=r"`min_probability` must be a probability in \[0, 1\], got -1"):
        reranker.rerank("red book", PASSAGES, min_probability=-1)
