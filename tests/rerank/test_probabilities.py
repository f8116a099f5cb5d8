"""A calibrated model gives probabilities with its scores, through every form that it can be loaded from."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.models.checkpoint import PRETRAINED, load_checkpoint
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.schemas.rerank import RerankRequest

PASSAGES = ["the red book", "a green pear", "who is who", "the author wrote it"]
LOGISTIC = Calibration(slope=0.7, intercept=-1.0)
FLAT = Calibration(slope=0.0, intercept=-1.0)
CONFIDENCE = ListConfidence(beyond=-1.0, within=0.5, intercept=-0.5)


def calibrated(make_checkpoint, calibration, confidence=None):
    checkpoint, entries = make_checkpoint(), {"calibration": calibration.model_dump(mode="json")}
    if confidence is not None:
        entries["list_confidence"] = confidence.model_dump(mode="json")
    return replace(checkpoint, manifest=checkpoint.manifest.with_entries(**entries))


def serve(folder: Path, query: str = "red book", **settings):
    request = RerankRequest(query=query, documents=PASSAGES, **settings)
    return RerankEngine(load_artifact(folder)).rerank({"a": request})["a"]


@pytest.mark.parametrize("calibration", [LOGISTIC, FLAT])
def test_the_order_is_that_of_the_scores(make_checkpoint, calibration) -> None:
    plain, ranking = (
        GraphReranker(checkpoint).rerank("red book", PASSAGES, edges=[(0, 3)], ids=list("abcd"))
        for checkpoint in (make_checkpoint(), calibrated(make_checkpoint, calibration))
    )
    assert plain.probabilities is None
    assert list(ranking) == list(plain)
    assert torch.equal(ranking.probabilities, calibration.probabilities(plain.scores))
    assert torch.equal(ranking[1:3].probabilities, ranking.probabilities[1:3])


@pytest.fixture(scope="module")
def checkpoint(make_checkpoint):
    return calibrated(make_checkpoint, LOGISTIC, CONFIDENCE)


@pytest.fixture(scope="module")
def artifact(checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated") / "artifact"
    export_artifact(checkpoint, folder)
    return folder


def test_an_artifact_and_a_checkpoint_keep_the_calibration(checkpoint, artifact: Path, tmp_path: Path) -> None:
    GraphReranker(checkpoint).save(tmp_path / "folder")
    ranking = GraphReranker(checkpoint).rerank("red book", PASSAGES)
    expected, complete = ranking.probabilities, ranking.perfect_recall
    assert torch.equal(complete, CONFIDENCE.perfect_recall(expected))
    for folder in (tmp_path / "folder", artifact):
        found = GraphReranker.from_pretrained(folder).rerank("red book", PASSAGES)
        torch.testing.assert_close(found.probabilities, expected)
        torch.testing.assert_close(found.perfect_recall, complete)
    served = serve(artifact, explain=True)
    probabilities = [result.explanation.probability for result in served.results]
    assert probabilities == pytest.approx(expected.tolist(), abs=1e-5)
    assert [result.relevance_score for result in served.results] == probabilities
    assert served.perfect_recall is None  # not requested
    served = serve(artifact, top_n=2, return_confidence=True)
    assert served.perfect_recall == pytest.approx(complete[:2].tolist(), abs=1e-5)


@pytest.mark.parametrize("name", ["base", "base-1", "attack"])
def test_a_shipped_model_was_calibrated_on_validation_splits_of_what_it_was_trained_on(name: str) -> None:
    manifest = load_checkpoint(PRETRAINED / name).reranker
    fitted = manifest.content["calibration"]["fitted"]
    assert fitted["split"] == manifest.val_split == "val"
    kept = manifest.start is not None and manifest.content["config"]["calibration"] == "start"
    trained_on = manifest.start.trained_on if kept else manifest.trained_on
    parts = {name: entry for name, entry in trained_on.items() if "/" not in name}  # not those of a start
    made = {name for name, entry in parts.items() if entry.arguments.get("drafted")} | {"attack_paths"}
    assert set(fitted["datasets"]) == (parts.keys() - made or parts.keys())
    ranking = GraphReranker.from_pretrained(name).rerank("red book", PASSAGES, edges=[(0, 3)])
    assert torch.equal(ranking.probabilities, manifest.calibration.probabilities(ranking.scores))
    assert list(ranking.probabilities) == sorted(ranking.probabilities, reverse=True)
    assert 0 < ranking.probabilities.min() < ranking.probabilities.max() < 1


def test_a_list_ends_where_the_probabilities_say(checkpoint, artifact: Path) -> None:
    reranker, query = GraphReranker(checkpoint), "who wrote the red book"  # no two passages have equal scores
    whole = reranker.rerank(query, PASSAGES)
    least, enough = float(whole.probabilities[1]), float(whole.perfect_recall[2])
    assert float(whole.probabilities[2]) < least
    cut = reranker.rerank(query, PASSAGES, min_probability=least)
    assert torch.equal(cut.perfect_recall, whole.perfect_recall)  # counts what was left out
    for settings, count in (
        ({"min_probability": least}, 2),
        ({"min_probability": least, "top_n": 1}, 1),
        ({"min_probability": 1.0}, 0),
        ({"min_perfect_recall": enough}, 3),
    ):
        assert list(reranker.rerank(query, PASSAGES, **settings)) == list(whole)[:count]
    served = serve(artifact, query, min_probability=least - 1e-6, return_confidence=True)
    assert [result.index for result in served.results] == cut.indices.tolist()
    assert len(served.perfect_recall) == 2
    with pytest.raises(ValueError, match=r"`min_probability` must lie in \[0, 1\], got -1"):
        reranker.rerank(query, PASSAGES, min_probability=-1)


@pytest.mark.parametrize("name", ["base", "attack"])
def test_a_passage_alone_has_a_probability_by_its_text(name: str) -> None:
    reranker = GraphReranker.from_pretrained(name)
    prior = float(
        reranker.checkpoint.reranker.calibration.probabilities(torch.zeros(1))
    )  # of any list without differences

    def alone(*passages: str, **more: object) -> float:
        probabilities = reranker.rerank("who wrote the red book", passages, **more).probabilities
        assert (probabilities == probabilities[0]).all()
        return float(probabilities[0])

    none, some, same = map(alone, ("a green pear", "Ann wrote the red books", "who wrote the red book"))
    assert none < some < same
    assert prior not in (none, some, same)
    assert none < min(prior, same / 5)
    assert alone(*["Ann wrote the red books"] * 3) == alone("Ann wrote the red books", scores=[9.0]) == some
    assert alone("a green pear", "bread") < prior
    with pytest.warns(UserWarning, match="blank"):
        assert alone("") == 0


def test_a_passage_alone_of_a_model_that_reads_vectors(make_checkpoint) -> None:
    reranker = GraphReranker(calibrated(partial(make_checkpoint, features="full"), LOGISTIC))
    query = torch.randn(8, generator=torch.Generator().manual_seed(1))
    for vectors in (query[None], query[None].numpy(), [query.tolist()]):
        ranking = reranker.rerank("red", ["a red book"], query_vector=query, vectors=vectors)
        assert 0 < ranking.probabilities.item() < 1


def test_scores_that_are_all_equal_have_no_probability(checkpoint, artifact: Path) -> None:
    reranker = GraphReranker(checkpoint)
    for settings in ({}, {"min_probability": 0.99}, {"min_perfect_recall": 0.99}):
        ranking = reranker.rerank("red book", scores=[0.5, 0.5], **settings)
        assert (ranking.probabilities, ranking.perfect_recall, len(ranking)) == (None, None, 2)
    engine = RerankEngine(load_artifact(artifact))
    requests = {"a": RerankRequest(query="red book", scores=[0.5], return_confidence=True, explain=True)}
    answer = engine.rerank(requests)["a"]
    assert (answer.results[0].relevance_score, answer.perfect_recall) == (None, None)
