"""A cross-encoder's last layers, trained with GRanker's head."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification

from graphrerank.models.checkpoint import load_checkpoint, load_checkpoints
from graphrerank.models.granker import GRankerLayers
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.serving.artifact import load_artifact
from graphrerank.serving.export import export_artifact
from graphrerank.training.reranker_module import RerankerModule
from tests.support.folders import write_dataset

GRANKER = (
    "model=granker_head", "ablations.mlp=null",
    "+ablations.cross_encoder_head={smoothing: 0.0, learn_smoothing: false}", "module.warmup_steps=10",
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words of letters: a query's answers begin as it does. Two passages have no edge, one query finds no answer."""
    folder = tmp_path_factory.mktemp("data") / "letters"
    letters = "abcdefghijkl"
    corpus = [
        {"_id": f"{a}{i}", "title": "", "text": f"{a}{a} {letters[-1 - j]} {i}"}
        for j, a in enumerate(letters)
        for i in "xy"
    ]
    queries = [{"_id": f"q{a}{n}", "text": f"{a}{a} {n * 'z'}"} for a in letters for n in (1, 2, 3)]
    edges = [(f"{a}x", f"{a}y", "same") for a in letters[:-1]]
    splits = {}
    for number, split in enumerate(("train", "val", "test"), 1):
        splits[split] = [(f"q{a}{number}", f"{a}{i}") for a in letters for i in "xy"]
        if split == "val":
            splits[split][-2:] = [(f"ql{number}", f"a{i}") for i in "xy"]
    write_dataset(folder, corpus=corpus, queries=queries, edges=edges, **splits)
    return folder


def arguments(corpus: Path, reader: Path) -> list[str]:
    return [
        *GRANKER, "model.learn_smoothing=true", "model.train_last_layers=1",
        f"pair_encoder.model={reader}", "pair_encoder.max_length=40", "data=folder", f"data.path={corpus}",
        "retriever=bm25", "retriever.top_k=6", "encoder=none", "trainer.max_epochs=2", "batches.batch_size=4",
        "module.learning_rate=1e-2", "+module.learning_rates.layers=1e-2", "trainer.accelerator=cpu", "device=cpu",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def run(corpus: Path, reader: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run_command("train.py", *arguments(corpus, reader), f"hydra.run.dir={folder}")
    return folder


def measures(folder: Path) -> dict[str, dict[str, float]]:
    (found,) = json.loads((folder / "metrics.json").read_text())["datasets"].values()
    return {
        system: {name: number for name, number in entry.items() if "@" in name}
        for system, entry in found["systems"].items()
    }


def weights(path: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(path, weights_only=True)["state_dict"]
    return state


def manifest_of(run: Path, system: str = "granker_head") -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / system / "manifest.json").read_text())
    return content


def test_layers_and_head_have_moved_and_are_in_the_checkpoint(run: Path, reader: Path) -> None:
    loaded = load_checkpoints(str(run))
    assert list(loaded) == ["cross_encoder_head", "granker_head"]
    start = BertForSequenceClassification.from_pretrained(reader)
    for system, checkpoint in loaded.items():
        model = checkpoint.model
        assert isinstance(model, GRankerLayers)
        own = model.layers.body.encoder.layer[0].attention.self.query.weight
        moved = (own - start.bert.encoder.layer[0].attention.self.query.weight).abs().max()
        assert 1e-4 < moved < 1, system
        assert 1e-4 < (model.granker.head.dense.weight - start.bert.pooler.dense.weight).abs().max() < 1
    assert loaded["granker_head"].model.granker.smoothing_logit.sigmoid().item() != pytest.approx(0.2, abs=1e-5)
    manifest = manifest_of(run)
    assert manifest["model"]["name"] == "granker_layers"
    assert manifest["model"]["arguments"]["train_last_layers"] == 1
    assert manifest["features"] == ["token_states", "degree"]
    assert str(reader) not in json.dumps(manifest["model"])


def test_evaluate_agrees_with_train_to_the_last_digit(
    run: Path, run_command, reader: Path, tmp_path: Path, corpus: Path
) -> None:
    run_command(
        "evaluate.py", f"checkpoint={run}", f"datasets=[{corpus}]", "pair_encoder=cross_encoder",
        f"pair_encoder.model={reader}", "pair_encoder.max_length=40", f"hydra.run.dir={tmp_path}", "device=cpu",
    )  # fmt: skip
    assert measures(tmp_path) == measures(run)


def test_written_cross_encoder_is_the_trained_model(run: Path, reader: Path) -> None:
    queries, passages = ["a z", "b", "c zz"], ["aa l x", "", "cc j y"]
    model = load_checkpoint(run / "granker_head" / "checkpoints" / "best.ckpt").model
    assert isinstance(model, GRankerLayers)
    start = CrossEncoder(reader, max_length=40, device="cpu")
    token_states, token_ptr = start.encode_states(queries, passages, without_last=1)
    trained = CrossEncoder(run / "granker_head" / "cross_encoder", max_length=40, device="cpu")
    vectors = trained.encode(queries, passages)
    with torch.inference_mode():
        torch.testing.assert_close(vectors, model.layers(token_states, token_ptr), atol=1e-6, rtol=0)
        torch.testing.assert_close(trained.head(vectors), model.granker.head(vectors), atol=1e-6, rtol=0)
    fingerprints = {trained.fingerprint, start.fingerprint}
    fingerprints.add(CrossEncoder(run / "cross_encoder_head" / "cross_encoder", max_length=40).fingerprint)
    assert len(fingerprints) == 3
    assert manifest_of(run)["fine_tuned"] == {"folder": "cross_encoder", "fingerprint": trained.fingerprint}


@pytest.fixture(scope="module")
def artifact(run: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    run_command("serve.py", "mode=export", f"checkpoint={run}", f"artifact={folder}")
    return folder


def test_exported_head_reads_the_written_cross_encoder(
    artifact: Path, run: Path, run_command, corpus: Path, tmp_path: Path
) -> None:
    loaded = load_artifact(artifact)
    inputs = [entry["name"] for entry in loaded.manifest.content["artifact"]["inputs"]]
    assert inputs == ["pair_vectors", "edge_index", "degree"]
    assert loaded.manifest.pair_encoder.arguments["model"] == str(run / "granker_head" / "cross_encoder")
    run_command(
        "evaluate.py", f"checkpoint={artifact}", f"datasets=[{corpus}]", "pair_encoder=cross_encoder",
        f"pair_encoder.model={run / 'granker_head' / 'cross_encoder'}", "pair_encoder.max_length=40",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert measures(tmp_path)["granker_head"] == measures(run)["granker_head"]


def test_pipelines_take_the_written_cross_encoder_and_the_exported_head(
    artifact: Path, run: Path, run_command, corpus: Path, tmp_path: Path
) -> None:
    run_command(
        "evaluate.py", "pipeline=fastinsight_head", f"pipeline.head.checkpoint={artifact}", "pipelines=[fastinsight]",
        "pipeline.budget=6", "num_queries=3", "data=folder", f"data.path={corpus}", "pair_encoder=cross_encoder",
        f"pair_encoder.model={run / 'granker_head' / 'cross_encoder'}", "pair_encoder.max_length=40",
        f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    (found,) = json.loads((tmp_path / "metrics.json").read_text())["datasets"].values()
    assert found["systems"]["fastinsight_head"]["cost"]["encodings"] == 6


@pytest.mark.parametrize(
    ("entry", "match"),
    [
        (
            {"folder": "elsewhere", "fingerprint": ""},
            "elsewhere: no such folder; needed the cross-encoder of the head",
        ),
        (None, "has trained layers, whose encoder is written at the end of training"),
    ],
)
def test_an_export_without_the_written_cross_encoder_is_refused(
    entry: dict[str, str] | None, match: str, run: Path, tmp_path: Path
) -> None:
    checkpoint = load_checkpoint(run / "granker_head" / "checkpoints" / "best.ckpt")
    changed = replace(checkpoint, manifest=checkpoint.manifest.with_entries(fine_tuned=entry))
    with pytest.raises(ValueError, match=match):
        export_artifact(changed, tmp_path / "artifact")
    assert not (tmp_path / "artifact").exists()


def test_resumed_run_equals_unbroken_run(
    run: Path, corpus: Path, reader: Path, run_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break the second model off in its second epoch, then resume the run folder."""
    asked, folder, start = arguments(corpus, reader), tmp_path / "broken", RerankerModule.training_step

    def stop(self: RerankerModule, graphs: Any, batch_idx: int) -> Any:
        learned = self.model.granker.smoothing_logit is not None
        if self.current_epoch == 1 and batch_idx == 1 and learned:
            raise SystemExit(9)
        return start(self, graphs, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(RerankerModule, "training_step", stop)
        run_command("train.py", *asked, f"hydra.run.dir={folder}", status=9)
    run_command("train.py", *asked, f"ckpt_path={folder}", f"hydra.run.dir={tmp_path / 'second'}")
    for system in ("cross_encoder_head", "granker_head"):
        for name in ("best", "last"):
            expected, found = (weights(path / system / "checkpoints" / f"{name}.ckpt") for path in (run, folder))
            assert expected.keys() == found.keys()
            assert [key for key in expected if not torch.equal(expected[key], found[key])] == []
        assert manifest_of(folder, system)["fine_tuned"] == manifest_of(run, system)["fine_tuned"]
    assert measures(folder) == measures(run)


def test_settings_are_checked(corpus: Path, reader: Path, run_command, tmp_path) -> None:
    overrides = ["model.train_last_layers=2", f"hydra.run.dir={tmp_path}"]
    done = run_command("train.py", *arguments(corpus, reader), *overrides, status=1)
    assert "`train_last_layers` must lie in [1, 1] for this encoder, got 2" in done.stderr
