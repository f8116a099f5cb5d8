"""A checkpoint that reads a cross-encoder's scores of the first candidates: with them, without them, and served."""

from pathlib import Path

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.artifacts.artifact import load_artifact
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import load_primary
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.schemas.rerank import RerankRequest
from tests.support.commands import manifest_of, measures_of, systems_of, train_in

PASSAGES, SCORES = ["a worm", "a removable drive", "a key logger"], [0.5, 0.4, 0.3]


@pytest.fixture(scope="module")
def arguments(reader: Path, small_attack: Path, small_encoder: tuple[str, ...]) -> tuple[str, ...]:
    return (
        "features=scores_match_typed_cross_encoder", "features.cross_encoder_top_k=3", *small_encoder,
        f"pair_encoder.model={reader}", "pair_encoder.max_length=48", "~ablations.mlp",
        "data=attack", f"data.path={small_attack}", "retriever=hybrid", "retriever.top_k=6", "trainer.max_epochs=2",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(arguments: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_in(tmp_path_factory.mktemp("run"), run_command, *arguments)


@pytest.fixture(scope="module")
def artifact(run: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact") / "artifact"
    run_command("export", f"checkpoint={run}", f"artifact={folder}")  # checks parity
    return folder


def test_evaluate_with_the_cross_encoder_agrees_with_train_and_reads_no_pair_again(
    run: Path, run_command, small_encoder: tuple[str, ...], reader: Path, cache: Path, tmp_path: Path
) -> None:
    sizes = {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")}
    run_command(
        "evaluate.py", f"checkpoint={run}", *small_encoder, "datasets=[attack]",
        "cross_encoder_top_k=3", "pair_encoder=cross_encoder",
        f"pair_encoder.model={reader}", "pair_encoder.max_length=48", f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert "cross_encoder on the first 3, whose time is in no stage" in (tmp_path / "report.md").read_text()
    evaluated = measures_of(tmp_path)
    del evaluated["rank_fusion"]  # a baseline of evaluate alone
    assert evaluated == measures_of(run)
    assert {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")} == sizes
    assert systems_of(tmp_path)["gatv2"]["cost"]["encodings"] == 3
    run_command("evaluate.py", f"checkpoint={run}", *small_encoder, "datasets=[attack]", f"hydra.run.dir={tmp_path}")
    assert "whose time is in no stage" not in (tmp_path / "report.md").read_text()
    assert measures_of(tmp_path).keys() - {"rank_fusion"} == measures_of(run).keys()
    manifest = manifest_of(run / "gatv2")
    assert manifest["pair_encoder"] is None
    names = manifest["retriever"]["feature_names"]
    assert tuple(names[5:8]) == CROSS_ENCODER_FEATURES
    assert names[8] == "query_word_1"


def test_the_service_takes_scores_or_goes_without(artifact: Path) -> None:
    engine, reranker = RerankEngine(load_artifact(artifact)), GraphReranker.from_pretrained(artifact)
    found = {}
    for name, given in (("none", None), ("some", [-3.0, 9.0, None])):
        request = {"query": "what spreads", "documents": PASSAGES, "scores": SCORES, "cross_encoder_scores": given}
        response = engine.rerank({"id": RerankRequest.model_validate(request)})["id"]
        found[name] = [(result.index, result.relevance_score) for result in response.results]
        expected = reranker.rerank("what spreads", PASSAGES, scores=SCORES, cross_encoder_scores=given)
        assert [index for index, _ in found[name]] == list(expected.ids)
        torch.testing.assert_close(torch.tensor([score for _, score in found[name]]), expected.relevance)
    assert found["none"] != found["some"]


def test_scores_for_a_model_that_does_not_read_them_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"`cross_encoder_scores` require a model .* \(features=scores_match_typed_cross"
    ):
        GraphReranker.from_pretrained("attack").rerank("q", PASSAGES, cross_encoder_scores=SCORES)


def test_calibrating_anew_goes_without_the_scores(
    run: Path, run_command, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    done = run_command("calibrate", f"checkpoint={run}", *small_encoder, f"hydra.run.dir={tmp_path}")
    assert "calibrating without cross-encoder scores" in done.stdout
    found, before = manifest_of(tmp_path), manifest_of(run / "gatv2")
    assert found["calibration"]["fitted"]["pairs"] == before["calibration"]["fitted"]["pairs"]
    assert found["calibration"]["slope"] != before["calibration"]["slope"]


@pytest.fixture(scope="module")
def finished(arguments: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that knew no cross-encoder."""
    settings = ("features=scores_match_typed", *(a for a in arguments if not a.startswith(("features", "pair_enc"))))
    return train_in(tmp_path_factory.mktemp("finished"), run_command, *settings)


def test_a_layer_for_the_scores_behind_finished_weights(
    finished: Path, arguments: tuple[str, ...], run_command, tmp_path: Path
) -> None:
    settings = (
        *arguments, f"start={finished}", "train_only=[lin_pairs]", "calibration=start",
        "features.cross_encoder_dropout=0", "cross_encoder_queries=8",
    )  # fmt: skip
    run_command("train.py", *settings, f"hydra.run.dir={tmp_path / 'run'}")
    before, after = (load_primary(folder) for folder in (finished, tmp_path / "run"))
    weights = after.model.state_dict()
    assert weights.pop("lin_pairs.weight").abs().sum() > 0
    for name, weight in before.model.state_dict().items():
        assert torch.equal(weights.pop(name), weight), name
    assert not weights
    assert after.manifest.content["calibration"] == before.manifest.content["calibration"]
    assert after.manifest.content["start"]["name"] == finished.name
    assert list(after.reranker.trained_on) == [f"{finished.name}/attack", "attack"]

    given = {"scores": SCORES, "edges": [(0, 1)]}
    plain, more = (GraphReranker.from_pretrained(folder) for folder in (finished, tmp_path / "run"))
    expected, found = (one.rerank("what spreads", PASSAGES, **given) for one in (plain, more))
    assert torch.equal(torch.as_tensor(expected.scores), torch.as_tensor(found.scores))
    read = more.rerank("what spreads", PASSAGES, cross_encoder_scores=[1.0, 5.0, 2.0], **given)
    assert not torch.equal(torch.as_tensor(read.scores), torch.as_tensor(found.scores))

    run_command("train.py", *settings, f"ckpt_path={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'other'}")
    other = [setting for setting in settings if not setting.startswith("start=")]
    run_command("train.py", *other, f"ckpt_path={tmp_path / 'run'}", f"hydra.run.dir={tmp_path / 'no'}", status=1)
