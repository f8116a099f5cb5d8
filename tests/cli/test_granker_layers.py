"""GRanker on a cross-encoder whose last layers are trained: run, written encoder, export, evaluation and resuming."""

# ruff: noqa: F811 - pytest passes the fixtures of the imported module by name

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.models.checkpoint import load_checkpoint, load_checkpoints
from graphrerank.models.granker_layers import GRankerLayers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.rerank.graph_reranker import GraphReranker
from tests.cli.test_granker import (  # noqa: F401  # the fixtures of the head, and what tests of it share
    arguments,
    check_exported_head,
    check_resumed_run,
    corpus,
    input_names,
    reading,
)
from tests.support.commands import manifest_of, measures_of, train_in

LAYERS = ("model.train_last_layers=1", "module.learning_rate=1e-2", "+module.parameter_groups.layers=1e-2")


@pytest.fixture(scope="module")
def layers(arguments: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_in(tmp_path_factory.mktemp("layers"), run_command, *arguments, *LAYERS)


@pytest.fixture(scope="module")
def artifact(layers: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    run_command("export", f"checkpoint={layers}", f"artifact={folder}")
    return folder


def test_layers_and_head_have_moved_and_are_in_the_checkpoint(layers: Path, reader: Path) -> None:
    loaded = load_checkpoints(str(layers))
    assert list(loaded) == ["cross_encoder_head", "granker_head"]
    start = BertForSequenceClassification.from_pretrained(reader)
    for system, checkpoint in loaded.items():
        model = checkpoint.model
        query = model.layers.body.encoder.layer[0].attention.self.query.weight
        moved = (query - start.bert.encoder.layer[0].attention.self.query.weight).abs().max()
        assert 1e-4 < moved < 1, system
        assert 1e-4 < (model.granker.head.dense.weight - start.bert.pooler.dense.weight).abs().max() < 1
    assert loaded["granker_head"].model.granker.smoothing_logit.sigmoid().item() != pytest.approx(0.2, abs=1e-5)
    manifest = manifest_of(layers / "granker_head")
    assert manifest["model"]["name"] == "granker_layers"
    assert manifest["model"]["arguments"]["train_last_layers"] == 1
    assert manifest["features"] == ["token_states", "degree"]
    assert str(reader) not in json.dumps(manifest["model"])


def test_evaluate_agrees_with_train(layers: Path, run_command, reader: Path, corpus: Path, tmp_path: Path) -> None:
    data = (f"datasets=[{corpus}]", f"hydra.run.dir={tmp_path}")
    run_command("evaluate.py", f"checkpoint={layers}", *reading(reader), *data)
    assert measures_of(tmp_path) == measures_of(layers)


def test_written_cross_encoder_is_the_trained_model(layers: Path, reader: Path) -> None:
    queries, passages = ["a z", "b", "c zz"], ["aa l x", "", "cc j y"]
    model = load_checkpoint(layers / "granker_head" / "checkpoints" / "best.ckpt").model
    assert isinstance(model, GRankerLayers)
    start = CrossEncoder(reader, max_length=40, device="cpu")
    token_states, token_ptr = start.encode_states(queries, passages, without_last=1)
    trained = CrossEncoder(layers / "granker_head" / "cross_encoder", max_length=40, device="cpu")
    vectors = trained.encode(queries, passages)
    with torch.inference_mode():
        torch.testing.assert_close(vectors, model.layers(token_states, token_ptr), atol=1e-6, rtol=0)
        torch.testing.assert_close(trained.head(vectors), model.granker.head(vectors), atol=1e-6, rtol=0)
    fingerprints = {trained.fingerprint, start.fingerprint}
    fingerprints.add(CrossEncoder(layers / "cross_encoder_head" / "cross_encoder", max_length=40).fingerprint)
    assert len(fingerprints) == 3
    fine_tuned = manifest_of(layers / "granker_head")["fine_tuned"]
    assert fine_tuned == {"folder": "cross_encoder", "fingerprint": trained.fingerprint}


def test_python_scores_with_the_frozen_layers_of_the_start(layers: Path, reader: Path) -> None:
    documents, edges = ["aa l x", "bb k y", "cc j x"], torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    encoder = CrossEncoder(reader, max_length=40, device="cpu")
    model = load_checkpoint(layers / "granker_head" / "checkpoints" / "best.ckpt").model
    states = encoder.encode_states(["aa z"] * 3, documents, without_last=1)
    with torch.inference_mode():
        expected = model(*states, edges, torch.tensor([1, 2, 1]))
    ranked = GraphReranker.from_pretrained(layers, pair_encoder=encoder).rerank(
        "aa z", documents, edges=[(0, 1), (1, 2)]
    )
    torch.testing.assert_close(ranked.scores, expected[ranked.indices], atol=1e-5, rtol=0)


def test_exported_head_reads_the_written_cross_encoder_also_in_a_pipeline(
    artifact: Path,
    layers: Path,
    run_command,
    corpus: Path,
    tmp_path: Path,
) -> None:
    written = layers / "granker_head" / "cross_encoder"
    loaded = load_artifact(artifact)
    assert input_names(loaded) == ["pair_vectors", "edge_index", "degree"]
    assert loaded.manifest.pair_encoder.arguments["model"] == str(written)
    check_exported_head(run_command, artifact, layers, encoder=written, corpus=corpus, run_dir=tmp_path)


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (
            {"folder": "elsewhere", "fingerprint": ""},
            "elsewhere: no such folder; the head needs the fine-tuned cross-encoder",
        ),
        (None, "the fine-tuned cross-encoder is written at the end of the training, which did not finish"),
    ],
)
def test_an_export_without_the_written_cross_encoder_is_refused(
    entry: dict[str, str] | None, match: str, layers: Path, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(layers / "granker_head" / "checkpoints" / "best.ckpt")
    changed = replace(checkpoint, manifest=checkpoint.manifest.with_entries(fine_tuned=entry))
    with pytest.raises(ValueError, match=match):
        export_artifact(changed, tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


def test_resumed_run_equals_unbroken_run(
    layers: Path,
    arguments: tuple[str, ...],
    run_command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resumed = check_resumed_run(
        run_command,
        (*arguments, *LAYERS),
        layers,
        head_of=lambda model: model.granker,
        tmp_path=tmp_path,
        monkeypatch=monkeypatch,
    )
    for system in ("cross_encoder_head", "granker_head"):
        assert manifest_of(resumed / system)["fine_tuned"] == manifest_of(layers / system)["fine_tuned"]


def test_settings_are_checked(arguments: tuple[str, ...], run_command, tmp_path: Path) -> None:
    overrides = ["model.train_last_layers=2", f"hydra.run.dir={tmp_path}"]
    done = run_command("train.py", *arguments, *overrides, status=1)
    assert "`train_last_layers` must be in [1, 1] for this encoder, got 2" in done.stderr
