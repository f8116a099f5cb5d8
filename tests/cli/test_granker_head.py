import json
from pathlib import Path

import pytest
from transformers import BertForSequenceClassification

from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.models.checkpoint import load_checkpoints
from graphrerank.models.granker import GRankerHead

SYSTEMS = ["retriever", "ppr", "gcs", "cross_encoder", "granker", "cross_encoder_head", "granker_head"]
GRANKER = (
    "model=granker_head", "ablations.mlp=null",
    "+ablations.cross_encoder_head={smoothing: 0.0, learn_smoothing: false}", "module.warmup_steps=10",
)  # fmt: skip


@pytest.fixture(scope="module")
def arguments(reader: Path, small_attack: Path, small_encoder: tuple[str, ...]) -> tuple[str, ...]:
    return (
        *GRANKER, "model.learn_smoothing=true", f"pair_encoder.model={reader}", *small_encoder,
        "data=attack", f"data.path={small_attack}", "retriever=hybrid", "retriever.top_k=6", "trainer.max_epochs=2",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(arguments: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run_command("train.py", *arguments, "pair_encoder.max_length=48", f"hydra.run.dir={folder}")
    return folder


def measures(folder: Path) -> dict[str, dict[str, float]]:
    found = json.loads((folder / "metrics.json").read_text())["datasets"]["attack"]["systems"]
    return {system: {name: number for name, number in entry.items() if "@" in name} for system, entry in found.items()}


def test_rows_and_manifest(run: Path, reader: Path) -> None:
    assert list(measures(run)) == SYSTEMS
    manifest = json.loads((run / "granker_head" / "manifest.json").read_text())
    assert manifest["features"] == ["pair_vector", "degree"]
    assert manifest["model"]["name"] == "granker_head"
    assert manifest["model"]["arguments"]["hidden_size"] == manifest["pair_encoder"]["dim"] == 8
    assert manifest["pair_encoder"]["arguments"]["model"] == str(reader)


def test_training_moved_the_head_and_the_smoothing(run: Path, reader: Path) -> None:
    loaded = load_checkpoints(str(run))
    assert list(loaded) == ["cross_encoder_head", "granker_head"]
    model = loaded["granker_head"].model
    assert isinstance(model, GRankerHead)
    assert model.smoothing_logit is not None
    assert model.smoothing_logit.sigmoid().item() != pytest.approx(0.2, abs=1e-5)
    start = BertForSequenceClassification.from_pretrained(reader)
    moved = (model.head.dense.weight - start.bert.pooler.dense.weight).abs().max()
    assert 0 < moved < 0.1  # it started there


@pytest.mark.slow
def test_two_processes_train_the_head_as_one_does(
    arguments: tuple[str, ...], run_command, run_process, tmp_path: Path
) -> None:
    job = (
        *arguments, "model.dropout=0", "pair_encoder.max_length=48", "~ablations.cross_encoder_head",
        "+trainer.enable_progress_bar=false",
    )  # fmt: skip
    both = ("trainer.devices=2", "trainer.strategy=ddp")
    for run, name, added in ((run_command, "alone", ()), (run_process, "together", both)):
        run("train.py", *job, *added, f"hydra.run.dir={tmp_path / name}")
    alone, together = (measures(tmp_path / name) for name in ("alone", "together"))
    assert list(together) == [system for system in SYSTEMS if system != "cross_encoder_head"]
    for system, found in together.items():
        assert found == pytest.approx(alone[system], abs=5e-3)


def test_evaluate_agrees_with_train_without_reading_a_pair_again(
    run: Path, run_command, reader: Path, small_encoder: tuple[str, ...], cache: Path, tmp_path: Path
) -> None:
    sizes = {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")}
    run_command(
        "evaluate.py", f"checkpoint={run}", "datasets=[attack]", *small_encoder, "pair_encoder=cross_encoder",
        f"pair_encoder.model={reader}", "pair_encoder.max_length=48", f"hydra.run.dir={tmp_path}",
    )  # fmt: skip
    assert measures(tmp_path) == measures(run)
    assert {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")} == sizes


def test_another_cross_encoder_is_refused(run: Path, run_command, small_encoder, tmp_path: Path) -> None:
    done = run_command(
        "evaluate.py", f"checkpoint={run}", "datasets=[attack]", *small_encoder, "pair_encoder=cross_encoder",
        f"pair_encoder.model={tmp_path}", f"hydra.run.dir={tmp_path}",
        status=1,
    )  # fmt: skip
    assert "was trained on vectors of the cross-encoder" in done.stderr + done.stdout


def test_a_reranker_of_scores_is_no_head(
    run_command, reader: Path, small_attack: Path, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    done = run_command(
        "evaluate.py", *small_encoder, "pipeline=fastinsight_head", "pipeline.head.checkpoint=attack", "data=attack",
        f"data.path={small_attack}", "pair_encoder=cross_encoder", f"pair_encoder.model={reader}",
        f"hydra.run.dir={tmp_path}",
        status=1,
    )  # fmt: skip
    assert "needed a head of GRanker (train.py experiment=granker_head), found a GATv2Reranker" in done.stderr


def test_it_is_no_reranker_of_scores(run: Path) -> None:
    with pytest.raises(ValueError, match=r"reads a cross-encoder's vectors .*; needed a model of "):
        GraphReranker.from_pretrained(run)
