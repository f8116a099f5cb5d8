import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import CandidateGraphs
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.models.checkpoint import (
    PRETRAINED,
    WEIGHTS_FILE,
    Checkpoint,
    find_checkpoint,
    load_checkpoint,
    load_checkpoints,
    load_primary,
    save_weights,
    start_entry,
    start_from,
    train_only,
)
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import MANIFEST, parse_manifest, write_manifest
from tests.support.manifests import make_manifest
from tests.support.models import randomised

ARGUMENTS = {"features": "scores", "hidden_channels": 16, "num_layers": 2, "embedding_dim": 8}


def manifest(**arguments: object) -> dict[str, Any]:
    return make_manifest("gatv2_reranker", ARGUMENTS | arguments, note="kept")


def model() -> GATv2Reranker:
    made: GATv2Reranker = randomised(GATv2Reranker(**ARGUMENTS))  # type: ignore[arg-type]
    return made


def write_ckpt(path: Path, **entries: object) -> Path:
    """Write a Lightning checkpoint, and its manifest one folder above."""
    write_manifest(path.parent.parent, manifest() | entries)
    path.parent.mkdir()
    state = {f"model.{name}": value for name, value in model().state_dict().items()}
    torch.save({"epoch": 3, "state_dict": {**state, "val_measures.total": torch.zeros(2)}}, path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, manifest())
    save_weights(tmp_path, model())
    return tmp_path


@pytest.fixture
def ckpt(tmp_path: Path) -> Path:
    return write_ckpt(tmp_path / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("form", ["folder", "ckpt"])
def test_round_trip(form: str, request: pytest.FixtureRequest, random_batch: Callable[..., CandidateGraphs]) -> None:
    path: Path = request.getfixturevalue(form)
    loaded = load_checkpoint(path)
    inputs = random_batch().model_inputs(loaded.model.inputs)
    assert torch.equal(loaded.model(*inputs), model()(*inputs))
    assert not loaded.model.training
    assert loaded.manifest.content == manifest()
    assert loaded.path == (path / WEIGHTS_FILE if form == "folder" else path)


def test_a_manifest_next_to_a_ckpt_comes_before_the_one_above(ckpt: Path) -> None:
    write_manifest(ckpt.parent, manifest() | {"note": "next to it"})
    assert load_checkpoint(ckpt).manifest.content["note"] == "next to it"


class Malicious:
    """Unpickling an instance creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return open, (str(self.path), "w")


@pytest.mark.parametrize("bare", [True, False], ids=["pickle", "torch.save"])
def test_malicious_pickle_is_refused_and_not_run(ckpt: Path, bare: bool, tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    content = {"state_dict": {"model.lin_in.weight": Malicious(trap)}}
    if bare:
        ckpt.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, ckpt)
    with pytest.raises(ValueError, match=r"last\.ckpt is not a Lightning checkpoint that can be loaded safely"):
        load_checkpoint(ckpt)
    assert not trap.exists()
    torch.load(ckpt, weights_only=False) if not bare else pickle.loads(ckpt.read_bytes())  # the trap does work
    assert trap.exists()


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x03\x04", b"\x80\x02]q\x00.", {"epoch": 1}, [1], {"state_dict": [1]}, 5]
)
def test_a_file_that_is_no_ckpt_is_refused(ckpt: Path, content: object) -> None:
    whole = ckpt.read_bytes()
    for cut in torch.randint(0, len(whole), (6,)).tolist():  # a truncated one
        ckpt.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"last\.ckpt is not a Lightning checkpoint that can be loaded safely"):
            load_checkpoint(ckpt)
    ckpt.write_bytes(content) if isinstance(content, bytes) else torch.save(content, ckpt)
    with pytest.raises(ValueError, match="not a Lightning checkpoint that can be loaded safely"):
        load_checkpoint(ckpt)


def test_missing_and_damaged_files_are_named(folder: Path) -> None:
    whole = (folder / WEIGHTS_FILE).read_bytes()
    for content in (b"", b"hello", b"\xff" * 64, whole[:-8]):
        (folder / WEIGHTS_FILE).write_bytes(content)
        with pytest.raises(ValueError, match=rf"{WEIGHTS_FILE}: damaged weights"):
            load_checkpoint(folder)
    for missing, message in (
        (folder / "nowhere" / WEIGHTS_FILE, "nowhere: no such checkpoint"),
        (folder / WEIGHTS_FILE, rf"{WEIGHTS_FILE}: no such file"),
        (folder / MANIFEST, rf"must have a {MANIFEST} in .*, found none"),
    ):
        missing.unlink(missing_ok=True)
        with pytest.raises(ValueError, match=message):
            load_checkpoint(missing.parent)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", rf"{MANIFEST}: not valid JSON: .*line 1 column 2"),
        ("[1]", rf"{MANIFEST} must contain a JSON object, got list"),
        ("{}", r"`model.name` must be one of \['complexity_adapter', .*, 'pyg_reranker'\], got 'None'"),
        ('{"model": {"name": "os.system"}}', "`model.name` must be one of .*, got 'os.system'"),
        (json.dumps(manifest(depth=3)), "do not fit gatv2_reranker: .*'depth'"),
        (json.dumps(manifest(heads=0)), "do not fit gatv2_reranker: .*positive"),
    ],
)
def test_manifest_that_names_no_model_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_checkpoint(folder)


@pytest.mark.parametrize("wanted", ["paper", "full"])
def test_weights_of_another_feature_mode_are_refused_by_name(folder: Path, wanted: str) -> None:
    encoder = {"name": "small", "fingerprint": "e" * 64, "dim": 8}
    write_manifest(folder, manifest(features=wanted) | {"encoder": encoder})
    with pytest.raises(ValueError, match=rf"do not fit the model of the manifest \(features={wanted}\)"):
        load_checkpoint(folder)


def test_checkpoints_are_found_by_name_or_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_checkpoint(str(folder)) == folder
    (only,) = load_checkpoints("attack").values()
    assert only.path == PRETRAINED / "attack" / WEIGHTS_FILE
    with pytest.raises(ValueError, match=r"one of the shipped names \[.*'attack'.*\], got 'nowhere'"):
        find_checkpoint("nowhere")
    (folder / "attack").mkdir()
    monkeypatch.chdir(folder)
    with pytest.warns(UserWarning, match=r"attack is the shipped checkpoint\. Write \./attack to use the path"):
        assert find_checkpoint("attack") == PRETRAINED / "attack"
    assert find_checkpoint("./attack") == find_checkpoint(Path("attack")) == Path("attack")


def write_run(folder: Path, **systems: dict[str, Any]) -> Path:
    for name, entries in systems.items():
        write_ckpt(folder / name / "checkpoints" / "best.ckpt", name=name, **entries)
    return folder


@pytest.mark.parametrize(
    "systems",
    [{"attack_net": {"primary": True}, "no_messages": {"primary": False}}, {"attack_net": {}}],
    ids=["said", "single"],
)
def test_the_run_says_which_model_is_primary(tmp_path: Path, systems: dict[str, Any]) -> None:
    run = write_run(tmp_path, **systems)
    assert load_primary(run).manifest.name == "attack_net"
    assert list(load_checkpoints(run))[-1] == "attack_net"
    assert len(load_checkpoints(run)) == len(systems)
    assert [load_primary(run / name).manifest.name for name in systems] == list(systems)


def test_a_run_without_a_primary_model_is_refused_where_one_is_needed(tmp_path: Path) -> None:
    run = write_run(tmp_path, mlp={}, gatv2={})
    assert list(load_checkpoints(run)) == ["gatv2", "mlp"]
    with pytest.raises(ValueError, match=r"contains the models \['gatv2', 'mlp'\], and none .*/gatv2"):
        load_primary(run)
    with pytest.raises(ValueError, match="must be a checkpoint or a run folder"):
        load_checkpoints(run / "mlp" / "checkpoints")


@pytest.fixture(scope="module")
def base() -> Checkpoint:
    return load_primary("base-1")


def settings_of(start: Checkpoint, **others: Any) -> dict[str, Any]:
    return {**start.reranker.model.arguments, **others}


def test_scores_of_a_cross_encoder_may_join(base: Checkpoint) -> None:
    count, names = settings_of(base)["num_scores"], base.reranker.retriever.feature_names
    same = GATv2Reranker(**settings_of(base))
    start_from(same, settings_of(base), names, base)
    assert all(torch.equal(same.state_dict()[name], weight) for name, weight in base.model.state_dict().items())
    settings = settings_of(base, num_scores=count + 3, num_pair_scores=3)
    model = GATv2Reranker(**settings).eval()
    start_from(model, settings, [*names, *CROSS_ENCODER_FEATURES], base)
    x = torch.rand(7, count)
    none = torch.empty(0, 0)
    edges = none, none, torch.tensor([[0, 1, 5], [1, 0, 6]]), torch.ones(3), torch.tensor([0, 7])
    unread, read = torch.cat([x, torch.zeros(7, 3)], dim=1), torch.cat([x, torch.rand(7, 3)], dim=1)
    expected = base.model(x, *edges)
    assert torch.equal(model(unread, *edges), expected)
    torch.nn.init.normal_(model.lin_pairs.weight)
    assert torch.equal(model(unread, *edges), expected)
    assert not torch.equal(model(read, *edges), expected)
    torch.testing.assert_close(torch.jit.script(model)(read, *edges), model(read, *edges))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"hidden_channels": 32}, r"hidden_channels=64 \(got 32\)"),
        ({"num_scores": 4, "num_layers": 2}, r"num_layers=3 \(got 2\), num_scores="),
        ({"num_pair_scores": 1}, "the scores must be those that `start`, .*, was trained on"),
    ],
)
def test_another_model_is_refused(base: Checkpoint, changed: dict[str, Any], message: str) -> None:
    settings = settings_of(base, **changed)
    names = base.reranker.retriever.feature_names
    if "num_pair_scores" in changed:
        names = ("of another retriever", *names)
    with pytest.raises(ValueError, match=message):
        start_from(GATv2Reranker(**settings), settings, names, base)


def test_only_some_parts_change(base: Checkpoint) -> None:
    model = GATv2Reranker(num_scores=5, num_pair_scores=2)
    train_only(model, ["lin_pairs", "lin_out"])
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {"lin_pairs.weight", "lin_out.weight", "lin_out.bias"}
    with pytest.raises(
        ValueError, match=r"`train_only` must only contain parts of the model, \['blocks', .*got \['lin_pair'\]"
    ):
        train_only(model, ["lin_pair"])


def test_the_manifest_remembers_all_data(base: Checkpoint, tmp_path: Path) -> None:
    entry = start_entry(base, "base-1")
    manifest = parse_manifest({**base.manifest.content, "start": entry}, tmp_path)
    own, before = base.reranker.trained_on, manifest.trained_on  # type: ignore[union-attr]
    assert list(before) == [*(f"base-1/{name}" for name in own), *own]
    assert before["base-1/attack"] == own["attack"].model_copy(update={"choice": None})
    third = start_entry(replace(base, manifest=manifest), "second")
    assert "base-1/attack" in third["trained_on"]
