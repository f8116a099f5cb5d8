"""Trainings and evaluations on a small ATT&CK and on small folders."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.models.manifest import read_manifest
from graphrerank.training.manifest import RESUMED_ENTRIES
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.resume import last_checkpoint
from tests.support import ROOT
from tests.support.commands import changed_weights, manifest_of, measures_of, systems_of, weights_of
from tests.support.damage import flip_bit
from tests.support.folders import write_dataset
from tests.support.stopping import exit_before_step

MEASURES = ("PR@5", "PR@10", "PR@5/multi", "PR@10/multi", "R@2", "R@5", "R@10", "nDCG@10")
SYSTEMS = ["retriever", "ppr", "gcs", "mlp", "gatv2"]


@pytest.fixture(scope="module")
def metrics(trained: Path) -> dict[str, Any]:
    """What ``metrics.json`` says of the data set that was trained on."""
    content: dict[str, Any] = json.loads((trained / "metrics.json").read_text())["datasets"]["attack"]
    return content


def test_training_measures_every_system_on_the_test_split(metrics: dict[str, Any]) -> None:
    assert metrics["split"] == "test"
    assert metrics["queries"] > 10
    assert list(metrics["systems"]) == SYSTEMS


@pytest.mark.parametrize("name", SYSTEMS)
def test_measures_are_shares_within_their_intervals(name: str, metrics: dict[str, Any]) -> None:
    system = metrics["systems"][name]
    assert [entry for entry in system if "@" in entry] == list(MEASURES)
    assert all(0 <= system[measure] <= 1 for measure in MEASURES)
    for measure in ("PR@10", "nDCG@10"):
        low, high = system["interval"][measure]
        assert 0 <= low < system[measure] < high <= 1


@pytest.mark.parametrize("name", SYSTEMS)
def test_latency_is_measured(name: str, metrics: dict[str, Any]) -> None:
    latency = metrics["systems"][name]["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"]


def test_the_last_model_is_compared_with_every_other_system(metrics: dict[str, Any]) -> None:
    assert {entry["system"] for entry in metrics["comparisons"]} == {SYSTEMS[-1]}
    assert {entry["baseline"] for entry in metrics["comparisons"]} == {*SYSTEMS[:-1]}
    assert all(0 < entry["p_value"] <= 1 for entry in metrics["comparisons"])


@pytest.mark.parametrize("system", ["mlp", "gatv2"])
def test_a_trained_model_has_its_measures_and_curves(system: str, trained: Path, metrics: dict[str, Any]) -> None:
    manifest = manifest_of(trained / system)
    assert manifest["finished"]
    assert manifest["model"]["arguments"]["message_passing"] is (system == "gatv2")
    assert manifest["metrics"]["attack/test"]["PR@10"] == metrics["systems"][system]["PR@10"]
    assert (trained / system / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_training_leaves_no_half_written_file(trained: Path) -> None:
    assert not list(trained.rglob("*.tmp"))


def test_evaluate_prints_the_table_of_training_and_takes_a_folder_too(
    trained: Path, run_command, small_encoder: tuple[str, ...], tmp_path: Path
) -> None:
    texts = ["a black cat", "a dog", "a cow"]
    folder = write_dataset(
        tmp_path / "cats",
        corpus=[{"_id": str(i), "title": "", "text": text} for i, text in enumerate(texts)],
        queries=[{"_id": "q", "text": "which cat is black?"}],
        test=[("q", "0")],
    )
    out = tmp_path / "out"
    data = (f"datasets=[attack,{folder}]", f"hydra.run.dir={out}")
    done = run_command("evaluate.py", f"checkpoint={trained}", *small_encoder, *data)
    assert done.stdout.splitlines()[-1] == str(out)
    before, after = systems_of(trained), systems_of(out, "attack")
    assert list(after) == ["retriever", "ppr", "gcs", "rank_fusion", "mlp", "gatv2"]  # training leaves the fusion out
    for system in SYSTEMS:
        for measure in set(before[system]) - {"latency_ms", "cost"}:
            assert after[system][measure] == before[system][measure]  # to the last digit
        file = Path("runs", f"attack.{system}.trec")
        assert (out / file).read_text() == (trained / file).read_text()
    for row in ("retriever", "PPR", "GCS", "MLP", "GATv2"):
        assert f"│{row} " in done.stdout
    for baseline in ("retriever", "GCS", "MLP"):
        assert f"GATv2 against {baseline}: PR@10 " in done.stdout
    cats = json.loads((out / "metrics.json").read_text())["datasets"]["cats"]
    assert (cats["queries"], cats["systems"]["retriever"]["PR@5"]) == (1, 1.0)


def test_same_seed_same_result_another_seed_another(
    trained: Path, run_command, small_job: tuple[str, ...], tmp_path: Path
) -> None:
    for seed in (1, 2):
        run_command("train.py", *small_job, "~ablations.mlp", f"seed={seed}", f"hydra.run.dir={tmp_path / str(seed)}")
    expected, same, other = (weights_of(run / "gatv2", "last") for run in (trained, tmp_path / "1", tmp_path / "2"))
    assert all(torch.equal(expected[name], same[name]) for name in expected)
    assert not all(torch.equal(expected[name], other[name]) for name in expected)


def test_resumed_run_equals_unbroken_run(
    trained: Path, run_command, small_job: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Break the second model off in its first epoch, then resume the run folder; test_granker.py in a later one."""
    folder = tmp_path / "broken"

    def is_last(module: Any, batch_idx: int) -> bool:
        return batch_idx == 1 and type(module.model.blocks[0].layer).__name__ == "GATv2Layer"

    with exit_before_step(RerankerModule, is_last, monkeypatch):
        run_command("train.py", *small_job, f"hydra.run.dir={folder}", status=9)
    assert not (folder / "metrics.json").exists()
    done = run_command("train.py", *small_job, f"ckpt_path={folder}", f"hydra.run.dir={tmp_path / 'second'}")
    assert done.stdout.splitlines()[-1] == str(folder)
    for system in ("mlp", "gatv2"):
        for name in ("best", "last"):
            assert changed_weights(trained / system, folder / system, name) == []
    assert measures_of(folder) == measures_of(trained)


def test_a_training_that_is_broken_off_within_an_epoch_goes_on_with_the_next_batch(
    run_command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_ring(tmp_path / "ring", 0)
    job = (
        "data=folder", f"data.path={tmp_path / 'ring'}", "features=scores", "retriever=bm25", "encoder=none",
        "trainer.max_epochs=2", "~ablations.mlp", "batches.batch_size=4",
    )  # fmt: skip
    steps: list[tuple[int, int]] = []

    def is_last(module: RerankerModule, batch_idx: int) -> bool:
        steps.append((module.current_epoch, batch_idx))
        return steps[-1] == (1, 1)

    run_command("train.py", *job, f"hydra.run.dir={tmp_path / 'run'}")
    broken, often = tmp_path / "broken", "+callbacks.last.every_n_train_steps=1"
    with exit_before_step(RerankerModule, is_last, monkeypatch):
        run_command("train.py", *job, often, f"hydra.run.dir={broken}", status=9)
    assert steps[-1] == (1, 1)
    run_command("train.py", *job, often, f"ckpt_path={broken}", f"hydra.run.dir={tmp_path / 'again'}")
    assert changed_weights(tmp_path / "run" / "gatv2", broken / "gatv2", "last") == []


def test_resuming_needs_the_settings_of_the_run(tmp_path: Path) -> None:
    folder = shutil.copytree(ROOT / "src" / "graphrerank" / "pretrained" / "attack", tmp_path / "gatv2")
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "last.ckpt").touch()
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- retriever=hybrid\n- data.path=a b\n- hydra.run.dir=x\n")
    trained = read_manifest(folder).content
    assert last_checkpoint(tmp_path, folder, trained, RESUMED_ENTRIES) == folder / "checkpoints" / "last.ckpt"
    data, retriever = trained["data"], trained["retriever"]
    for changed, message in [
        ({"data": {**data, "choice": "folder"}}, "data.choice=attack, got folder"),
        ({"data": {**data, "arguments": {**data["arguments"], "path": "b"}}}, "data.arguments.path=None, got b"),
        ({"retriever": {**retriever, "arguments": {}}}, "retriever.arguments.bm25_weight=0.3, got None"),
        ({"mix": {"nfcorpus": {"fingerprint": "0"}}}, "mix.nfcorpus.fingerprint=None, got 0"),
    ]:
        repeated = "Repeat the settings of the run: .*retriever=hybrid 'data.path=a b' ckpt_path="
        with pytest.raises(ValueError, match=f"{message}. {repeated}"):
            last_checkpoint(tmp_path, folder, trained | changed, RESUMED_ENTRIES)


@pytest.mark.parametrize("kind", ["candidates", "vectors"])
def test_a_damaged_cache_is_computed_again(
    trained: Path, run_command, small_encoder: tuple[str, ...], cache: Path, tmp_path: Path, kind: str
) -> None:
    copied = tmp_path / "cache"  # other tests read the cache of the session
    shutil.copytree(cache, copied)
    files = list((copied / kind).rglob("*.safetensors"))
    for file in files:
        flip_bit(file)
    settings = (*small_encoder, f"paths.cache={copied}", f"hydra.run.dir={tmp_path / 'run'}")
    done = run_command("evaluate.py", f"checkpoint={trained}", *settings)
    assert any(f"{file}: damaged cache" in done.stderr for file in files)


def test_training_on_a_mix_with_augmentation(run_command, tiny_encoder: Path, tmp_path: Path) -> None:
    for number in range(2):
        write_ring(tmp_path / f"set{number}", number)
    mix = f"mix={{other: {{data: folder, path: {tmp_path / 'set1'}, name: other, splits: {{train: train, val: val}}}}}}"
    with_itself = f"mix={{folder: {{path: {tmp_path / 'set1'}}}}}"
    settings = [
        "data=folder", f"data.path={tmp_path / 'set0'}", "features=scores_match", "retriever=hybrid_expand",
        "encoder=sentence_transformer", f"encoder.model={tiny_encoder}",
        "retriever.top_k=8", "retriever.base_k=5", "retriever.num_seeds=2", "augmentation.edge_dropout=0.2",
        "augmentation.score_dropout=0.2", "trainer.max_epochs=2", "~ablations.mlp",
    ]  # fmt: skip
    run_command("train.py", *settings, mix, "shares={folder: 1, other: 2}", f"hydra.run.dir={tmp_path / 'run'}")
    manifest = manifest_of(tmp_path / "run" / "gatv2")
    assert list(manifest["mix"]) == ["other"]
    assert manifest["retriever"]["feature_names"][-1] == "neighbourhood_coverage"
    logged = (next((tmp_path / "run" / "gatv2" / "csv").rglob("metrics.csv"))).read_text(encoding="utf-8")
    assert {"val/pr@10", "val/folder/pr@10", "val/other/pr@10", "val/loss"} <= set(logged.splitlines()[0].split(","))
    refused = run_command("train.py", *settings, mix, "shares={folder: 1}", status=1)
    assert "`shares` must give each of ['folder', 'other']" in refused.stderr
    refused = run_command("train.py", *settings, with_itself, status=1)
    assert "`mix` must not contain the data set of `data`" in refused.stderr


def test_drafted_questions_train_and_neither_validate_nor_calibrate(
    run_command, tiny_encoder: Path, tmp_path: Path
) -> None:
    write_ring(tmp_path / "ring", 0)
    settings = [
        "data=folder", f"data.path={tmp_path / 'ring'}", "features=scores", "retriever=hybrid_expand",
        "encoder=sentence_transformer", f"encoder.model={tiny_encoder}",
        "retriever.top_k=8", "retriever.base_k=5", "retriever.num_seeds=2", "trainer.max_epochs=1", "~ablations.mlp",
    ]  # fmt: skip
    mix = f"mix={{drafted: {{data: folder, path: {tmp_path / 'ring'}, drafted: 60}}}}"
    judged = {}
    for run, chosen in (("mixed", [mix]), ("alone", ["data.drafted=60"])):
        run_command("train.py", *settings, *chosen, f"hydra.run.dir={tmp_path / run}")
        folder = tmp_path / run / "gatv2"
        header = next((folder / "csv").rglob("metrics.csv")).read_text(encoding="utf-8").splitlines()[0]
        validated = {
            name.split("/")[1] for name in header.split(",") if name.startswith("val/") and name.count("/") == 2
        }
        judged[run] = validated, manifest_of(folder)["calibration"]["fitted"]["datasets"]
    assert judged == {"mixed": ({"folder"}, ["folder"]), "alone": (set(), ["folder"])}
    refused = run_command(
        "calibrate", f"checkpoint={tmp_path / 'mixed'}", f"hydra.run.dir={tmp_path / 'again'}", status=1
    )
    assert "to use a folder, set it on the command line: encoder.model=DIR" in refused.stderr
    named = ("encoder=sentence_transformer", f"encoder.model={tiny_encoder}")
    again = run_command("calibrate", f"checkpoint={tmp_path / 'mixed'}", *named, f"hydra.run.dir={tmp_path / 'again'}")
    assert "drafted val" not in again.stdout


def write_ring(folder: Path, seed: int) -> None:
    """A data set folder of forty passages in a ring and thirty queries of two neighbours each."""
    rng = random.Random(seed)
    words = [f"word{i}" for i in range(50)]
    texts = [" ".join(rng.sample(words, 5)) for _ in range(40)]
    asked = [f"{texts[i].split()[0]} and {texts[i + 1].split()[1]}" for i in range(30)]
    splits = {"train": range(18), "val": range(18, 24), "test": range(24, 30)}
    write_dataset(
        folder,
        corpus=[{"_id": f"d{i}", "title": f"t{i}", "text": text} for i, text in enumerate(texts)],
        queries=[{"_id": f"q{i}", "text": text} for i, text in enumerate(asked)],
        edges=[(f"d{i}", f"d{(i + 1) % 40}", "next") for i in range(40)],
        **{split: [(f"q{i}", f"d{j}") for i in queries for j in (i, i + 1)] for split, queries in splits.items()},
    )
