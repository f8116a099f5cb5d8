"""GRanker's head on a cross-encoder that stays."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertForSequenceClassification

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.models.checkpoint import load_checkpoints
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.serving.engines.rerank import load_rerank_engine
from graphrerank.serving.limits import Limits
from graphrerank.serving.schemas.rerank import RerankRequest
from graphrerank.training.reranker_module import RerankerModule
from tests.support.commands import changed_weights, manifest_of, measures_of, train_in
from tests.support.encoders import HashPairEncoder
from tests.support.folders import write_dataset
from tests.support.stopping import exit_before_step

FROZEN = ["retriever", "ppr", "gcs", "cross_encoder", "granker"]


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


@pytest.fixture(scope="module")
def arguments(corpus: Path, reader: Path) -> tuple[str, ...]:
    return (
        "model=granker_head", "ablations.mlp=null", "model.learn_smoothing=true", "module.warmup_steps=10",
        "+ablations.cross_encoder_head={smoothing: 0.0, learn_smoothing: false}",
        f"pair_encoder.model={reader}", "pair_encoder.max_length=40", "data=folder", f"data.path={corpus}",
        "retriever=bm25", "retriever.top_k=6", "encoder=none", "trainer.max_epochs=2", "batches.batch_size=4",
        "trainer.accelerator=cpu", "device=cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def head(arguments: tuple[str, ...], run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_in(tmp_path_factory.mktemp("head"), run_command, *arguments)


def test_the_pairs_are_announced_and_read_before_the_training(
    head: Path, arguments: tuple[str, ...], run_command, tmp_path: Path
) -> None:
    """All that training and evaluation read: a fresh cache has each pair, and the second time all are cached."""
    here = (*arguments, f"hydra.run.dir={tmp_path / 'run'}", f"paths.cache={tmp_path / 'cache'}")
    read = [run_command("train.py", *here).stderr.splitlines()[0] for _ in range(2)]
    counts = [re.fullmatch(r"(\d+) pairs of .*: (\d+) are cached, (\d+) must be encoded", line) for line in read]
    (total, *first), (again, *second) = (map(int, found.groups()) for found in counts)
    assert 0 < total == again
    assert (first, second) == ([0, total], [total, 0])
    assert measures_of(tmp_path / "run") == measures_of(head)


def test_few_queries_of_each_split(arguments: tuple[str, ...], run_command, tmp_path: Path) -> None:
    done = run_command("train.py", *arguments, "num_queries=4", f"hydra.run.dir={tmp_path}")
    assert "letters test: 4 queries" in done.stdout
    assert int(done.stderr.split()[0]) <= 12 * 6
    refused = run_command("train.py", *arguments, "num_queries=0", f"hydra.run.dir={tmp_path}", status=1)
    assert "`num_queries` must be a positive integer, got 0" in refused.stderr


def test_a_cross_encoder_that_cannot_be_had_is_refused_before_anything_is_read(
    arguments: tuple[str, ...], run_command, tmp_path: Path
) -> None:
    done = run_command(
        "train.py", *arguments, "pair_encoder.model=someone/reader", f"hydra.run.dir={tmp_path}", status=1
    )
    assert done.stdout == ""
    assert "got 'someone/reader'. Without access to the hub, download the model elsewhere" in done.stderr
    assert "set pair_encoder.model=DIR" in done.stderr


@pytest.fixture(scope="module")
def artifact(head: Path, run_command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("artifact")
    run_command("export", f"checkpoint={head}", f"artifact={folder}")
    return folder


def reading(model: Path) -> tuple[str, ...]:
    return ("pair_encoder=cross_encoder", f"pair_encoder.model={model}", "pair_encoder.max_length=40", "device=cpu")


def test_it_trains_on_a_device(head: Path, arguments: tuple[str, ...], run_on_device, tmp_path: Path) -> None:
    there = [argument for argument in arguments if argument not in ("trainer.accelerator=cpu", "device=cpu")]
    run_on_device("train.py", *there, f"hydra.run.dir={tmp_path}")
    here = measures_of(head)
    assert {name: pytest.approx(measures) for name, measures in measures_of(tmp_path).items()} == here


def test_a_trained_head(head: Path, reader: Path) -> None:
    assert list(measures_of(head)) == [*FROZEN, "cross_encoder_head", "granker_head"]
    manifest = manifest_of(head / "granker_head")
    assert manifest["features"] == ["pair_vector", "degree"]
    assert manifest["model"]["name"] == "granker_head"
    assert manifest["model"]["arguments"]["hidden_size"] == manifest["pair_encoder"]["dim"] == 8
    assert manifest["pair_encoder"]["arguments"]["model"] == str(reader)
    model = load_checkpoints(str(head))["granker_head"].model
    assert model.smoothing_logit.sigmoid().item() != pytest.approx(0.2, abs=1e-6)
    start = BertForSequenceClassification.from_pretrained(reader)
    assert 0 < (model.head.dense.weight - start.bert.pooler.dense.weight).abs().max() < 0.2  # it started there
    with pytest.raises(
        ValueError, match=r"must contain a model of scores and edges, .* needs the cross-encoder's vectors"
    ):
        GraphReranker.from_pretrained(head)


def test_evaluate_agrees_with_train_without_reading_a_pair_again(
    head: Path, run_command, reader: Path, corpus: Path, cache: Path, tmp_path: Path
) -> None:
    sizes = {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")}
    data = (f"datasets=[{corpus}]", f"hydra.run.dir={tmp_path}")
    run_command("evaluate.py", f"checkpoint={head}", *reading(reader), *data)
    assert measures_of(tmp_path) == measures_of(head)
    assert {file: file.stat().st_size for file in (cache / "pairs").glob("*.sqlite")} == sizes


def test_a_head_and_a_cross_encoder_that_do_not_fit_are_refused(
    head: Path, run_command, reader: Path, corpus: Path, tmp_path: Path
) -> None:
    fastinsight = ("pipeline=fastinsight_head", "pipeline.head.checkpoint=attack", "encoder=none", "retriever=bm25")
    for arguments, message in (
        ((f"checkpoint={head}", *reading(tmp_path)), "must be that of the training of"),
        (
            (*fastinsight, *reading(reader)),
            "must contain a GRankerHead, got a GATv2Reranker. Train one with graphrerank train experiment=granker_head",
        ),
    ):
        data = (f"datasets=[{corpus}]", f"hydra.run.dir={tmp_path}")
        done = run_command("evaluate.py", *arguments, *data, status=1)
        assert message in done.stderr + done.stdout


def test_a_served_head_against_the_equation(head: Path, reader: Path, run_command, tmp_path: Path) -> None:
    run_command("export", f"checkpoint={head}", f"artifact={tmp_path}")
    encoder = CrossEncoder(reader, max_length=40, device="cpu")
    engine = load_rerank_engine(tmp_path, None, Limits(), "cpu", make_pair_encoder=lambda: encoder)
    engine.warm_up()
    documents = ["aa l 1", "bb k 0", "aa l 0", "cc j y"]
    request = RerankRequest(query="aa z", documents=documents, edges=[[0, 1], [1, 2]])
    served = engine.answer({"one": request, "other": request})["other"]
    vectors = encoder.encode(["aa z"] * 4, documents)
    edge_index, degree = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), torch.tensor([1, 2, 1, 0])
    loaded = load_checkpoints(str(head))["granker_head"]
    with torch.inference_mode():
        expected = loaded.model(vectors, edge_index, degree)
    ranked = GraphReranker.from_pretrained(head, pair_encoder=encoder).rerank("aa z", documents, edges=[(0, 1), (1, 2)])
    for order, scores in (
        (served.indices, torch.tensor(served.scores)),
        (ranked.indices.tolist(), ranked.scores),
    ):
        torch.testing.assert_close(scores, expected[order], atol=1e-5, rtol=0)
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)
    with pytest.raises(ValueError, match="`explain` is not supported by a GRanker head"):
        engine.rerank({"one": request.model_copy(update={"explain": True})})
    with pytest.raises(ValueError, match="needs the texts of query and `passages`"):
        GraphReranker.from_pretrained(head, pair_encoder=encoder).rerank("aa z", scores=[1.0, 0.5])
    with pytest.raises(ValueError, match="must be that of the training of"):
        GraphReranker.from_pretrained(head, pair_encoder=HashPairEncoder())


def input_names(artifact: Any) -> list[str]:
    """Return the names of the inputs of an exported model."""
    return [entry["name"] for entry in artifact.manifest.content["artifact"]["inputs"]]


def check_exported_head(
    run_command, artifact: Path, trained: Path, *, encoder: Path, corpus: Path, run_dir: Path
) -> None:
    """Check that an exported head ranks as after its training, and that a pipeline can use it."""
    data = (f"datasets=[{corpus}]", f"hydra.run.dir={run_dir}", *reading(encoder))
    run_command("evaluate.py", f"checkpoint={artifact}", *data)
    assert measures_of(run_dir)["granker_head"] == measures_of(trained)["granker_head"]
    fastinsight = ("pipeline=fastinsight_head", f"pipeline.head.checkpoint={artifact}", "pipelines=[fastinsight]")
    run_command("evaluate.py", *fastinsight, "pipeline.budget=6", "num_queries=3", *data)
    (found,) = json.loads((run_dir / "metrics.json").read_text())["datasets"].values()
    assert found["systems"]["fastinsight_head"]["cost"]["encodings"] == 6


def test_an_exported_head_ranks_alike_also_in_a_pipeline(
    artifact: Path, head: Path, reader: Path, run_command, corpus: Path, tmp_path: Path
) -> None:
    loaded = load_artifact(artifact)
    assert input_names(loaded) == ["pair_vectors", "edge_index", "degree"]
    check_exported_head(run_command, artifact, head, encoder=reader, corpus=corpus, run_dir=tmp_path)


def check_resumed_run(
    run_command,
    settings: Sequence[str],
    unbroken: Path,
    *,
    head_of: Callable[[Any], Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """Break the second model off in its second epoch, resume the run, and compare it with an unbroken one."""
    folder = tmp_path / "broken"

    def is_last(module: RerankerModule, batch_idx: int) -> bool:
        is_second_model = head_of(module.model).smoothing_logit is not None
        return (module.current_epoch, batch_idx) == (1, 1) and is_second_model

    with exit_before_step(RerankerModule, is_last, monkeypatch):
        run_command("train.py", *settings, f"hydra.run.dir={folder}", status=9)
    run_command("train.py", *settings, f"ckpt_path={folder}", f"hydra.run.dir={tmp_path / 'second'}")
    for system in ("cross_encoder_head", "granker_head"):
        for name in ("best", "last"):
            assert changed_weights(unbroken / system, folder / system, name) == []
    assert measures_of(folder) == measures_of(unbroken)
    return folder


def test_resumed_run_equals_unbroken_run(
    head: Path, arguments: tuple[str, ...], run_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_resumed_run(
        run_command, arguments, head, head_of=lambda model: model, tmp_path=tmp_path, monkeypatch=monkeypatch
    )
