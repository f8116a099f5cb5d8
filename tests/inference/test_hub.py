import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.inference.hub import model_card
from graphrerank.models.checkpoint import PRETRAINED, Checkpoint, load_checkpoint
from graphrerank.models.manifest import parse_manifest, seal_manifest, write_manifest
from tests.support.web import serving

HUB_ID = "someone/reranker"
COMMIT = "c" * 40


class FakeHub:
    """A folder in the hub's place."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[dict[str, Any]] = []

    def snapshot_download(self, repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        self.asked.append({"repo_id": repo_id, "revision": revision, "allow_patterns": allow_patterns})
        target = self.folder / "cache"
        target.mkdir(exist_ok=True)
        for name in allow_patterns:
            if (self.folder / repo_id / name).exists():
                shutil.copy(self.folder / repo_id / name, target)
        return str(target)

    def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
        (self.folder / repo_id).mkdir(parents=True, exist_ok=exist_ok)
        self.private = private
        return f"https://hub.test/{repo_id}"

    def upload_folder(self, *, repo_id: str, folder_path: Path, commit_message: str) -> None:
        shutil.copytree(folder_path, self.folder / repo_id, dirs_exist_ok=True)


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "HfApi", type("HfApi", (), {"__new__": lambda cls, token: fake}))
    monkeypatch.chdir(tmp_path)
    return fake


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_an_artifact_goes_to_the_hub_and_comes_back(fake_hub: FakeHub) -> None:
    reranker = GraphReranker.from_pretrained("attack")
    assert reranker.push_to_hub(HUB_ID, license_name="apache-2.0") == f"https://hub.test/{HUB_ID}"
    assert fake_hub.private
    there = fake_hub.folder / HUB_ID
    assert files(there) == {"README.md", "manifest.json", "model.pt", "model.safetensors"}
    assert (there / "model.pt").read_bytes() == (PRETRAINED / "attack" / "model.pt").read_bytes()

    again = GraphReranker.from_pretrained(HUB_ID, revision="v1")
    assert fake_hub.asked == [
        {"repo_id": HUB_ID, "revision": "v1", "allow_patterns": ["manifest.json", "model.safetensors"]}
    ]
    assert files(fake_hub.folder / "cache") == {"manifest.json", "model.safetensors"}  # no program came along
    given = {"scores": [0.5, 0.2, 0.1], "edges": [(0, 2)]}
    assert torch.equal(again.rerank("q", **given).scores, reranker.rerank("q", **given).scores)


def test_a_checkpoint_goes_without_its_folder(fake_hub: FakeHub, make_checkpoint: Callable[..., Checkpoint]) -> None:
    checkpoint = make_checkpoint()
    GraphReranker(checkpoint).push_to_hub(HUB_ID, license_name="mit", private=False)
    assert not fake_hub.private
    there = fake_hub.folder / HUB_ID
    assert files(there) == {"README.md", "manifest.json", "model.safetensors"}
    state = load_checkpoint(there).model.state_dict()
    assert all(torch.equal(tensor, state[name]) for name, tensor in checkpoint.model.state_dict().items())


@pytest.mark.parametrize("attack", ["link", "manifest", "changed", "outside"])
def test_an_untrusted_artifact_sends_nothing_else_along(fake_hub: FakeHub, tmp_path: Path, attack: str) -> None:
    """Once the link's target was uploaded, and a file outside overwritten."""
    (tmp_path / "secret").write_text("secret")
    folder = shutil.copytree(PRETRAINED / "attack", tmp_path / "theirs" / "artifact")
    content = json.loads((folder / "manifest.json").read_text())
    names = list(content["artifact"]["sha256"])
    if attack == "link":
        (folder / "notes").symlink_to(tmp_path / "secret")
        names.append("notes")
    if attack == "outside":
        shutil.copy(tmp_path / "secret", folder.parent / "x")
        names.append("../x")
    write_manifest(folder, seal_manifest(content, folder, names))
    if attack == "manifest":
        (folder / "manifest.json").rename(tmp_path / "kept.json")
        (folder / "manifest.json").symlink_to(tmp_path / "kept.json")
    if attack == "changed":
        (folder / "model.pt").write_bytes(b"changed since")
    message = {"link": "found a link", "manifest": "found a link", "changed": "needed SHA-256"}
    with pytest.raises(ValueError, match=message.get(attack, "must be a plain name")):
        GraphReranker.from_pretrained(folder).push_to_hub(HUB_ID, license_name="mit")
    assert not (fake_hub.folder / HUB_ID).exists()


def test_what_the_hub_does_not_have(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    there = shutil.copytree(PRETRAINED / "attack", fake_hub.folder / HUB_ID)
    manifest = json.loads((there / "manifest.json").read_text())
    manifest["retriever"]["arguments"]["bm25_weight"] = 0.9
    (there / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the manifest was changed"):
        GraphReranker.from_pretrained(HUB_ID)
    shutil.rmtree(fake_hub.folder / "cache")
    shutil.rmtree(there)
    with pytest.raises(ValueError, match=r"someone/reranker: needed manifest\.json in the hub's repository"):
        GraphReranker.from_pretrained(HUB_ID)

    def refuse(*arguments: Any, **more: Any) -> None:
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=r"someone/reranker: no such path here, and not to be had from .*: offline"):
        GraphReranker.from_pretrained(HUB_ID)


def test_paths_come_before_the_hub(fake_hub: FakeHub, tmp_path: Path) -> None:
    for name in ("nothing", "./some/one", "/some/one", "a/b/c"):
        with pytest.raises(ValueError, match="or one of the shipped names"):
            GraphReranker.from_pretrained(name)
        with pytest.raises(ValueError, match="`repo_id` must be owner/name"):
            GraphReranker.from_pretrained("attack").push_to_hub(name, license_name="mit")
    shutil.copytree(PRETRAINED / "attack", tmp_path / HUB_ID)
    assert GraphReranker.from_pretrained(HUB_ID).name == "gatv2"
    with pytest.raises(ValueError, match="`revision` is of models from the hub"):
        GraphReranker.from_pretrained(HUB_ID, revision="v1")
    assert fake_hub.asked == []


def test_the_card_has_the_manifests_entries_and_measures_of_runs(tmp_path: Path) -> None:
    manifest = json.loads((PRETRAINED / "attack" / "manifest.json").read_text())
    manifest["calibration"] = {
        "method": "logistic",
        "slope": 1.0,
        "intercept": 0.0,
        "fitted": {"datasets": ["attack"], "split": "val", "pairs": 900, "ece": 0.01234},
    }
    systems = {"attack": {"PR@5": 0.6449, "PR@5/multi": 0.1, "nDCG@10": 0.827, "interval": {}, "tied_share": 0.0}}
    toy = {"split": "test", "queries": 2062, "ceiling": 0.883, "systems": systems}
    (tmp_path / "metrics.json").write_text(json.dumps({"datasets": {"toy": toy}}))
    card = model_card(parse_manifest(manifest, "attack"), HUB_ID, "apache-2.0", runs=[tmp_path])
    for expected in (
        '---\nlicense: "apache-2.0"\nlibrary_name: graphrerank\n',
        f"GraphReranker.from_pretrained('{HUB_ID}')",
        "`gatv2_reranker` of graphrerank",
        "It reads no embedding",
        *(f"- `{name}`" for name in manifest["features"]),
        "- attack, fingerprint `e0907122f705`",
        "| data set/split | PR@10 | PR@10/multi |",
        "| attack/test | 0.7003 | 0.7003 | 0.5597 |",
        "| logistic | ['attack'] | val | 900 | 0.01234 |",
        "### toy\n\n2,062 queries of test",
        "The candidates hold 88.3% of the relevant passages.",
        "| attack | 64.5 | 82.7 |",
    ):
        assert expected in card
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(ValueError, match=r"metrics.json: needed the measures of a run of evaluate.py, found none"):
        model_card(parse_manifest(manifest, "attack"), HUB_ID, "mit", runs=[tmp_path])


def test_the_card_of_a_model_that_reads_vectors(make_checkpoint: Callable[..., Checkpoint]) -> None:
    card = model_card(make_checkpoint(features="paper").reranker, HUB_ID, "other")
    assert "query_vector=query_vector, vectors=vectors" in card
    assert "None were kept with the checkpoint." in card
    assert not any(absent in card for absent in ("edge_types", "## Calibration"))


@pytest.mark.slow  # three processes
def test_a_mirror_then_the_cache_and_the_commit_that_it_was(tmp_path: Path) -> None:
    code = f"from graphrerank import GraphReranker as G; print(G.from_pretrained({HUB_ID!r}, revision={{!r}}).source)"
    files = {name: (PRETRAINED / "attack" / name).read_bytes() for name in ("manifest.json", "model.safetensors")}
    model = {"id": HUB_ID, "sha": COMMIT, "siblings": [{"rfilename": name} for name in ("model.pt", *files)]}
    tree = [{"type": "file", "path": name, "size": 1, "oid": "0" * 40} for name in ("model.pt", *files)]
    there = {f"/{HUB_ID}/resolve/{COMMIT}/{name}": content for name, content in files.items()}  # no program
    there[f"/api/models/{HUB_ID}/revision/main"] = json.dumps(model).encode()
    there[f"/api/models/{HUB_ID}/tree/{COMMIT}"] = json.dumps(tree).encode()

    def load(revision: str, offline: str) -> subprocess.CompletedProcess[str]:
        given = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": offline, "HF_ENDPOINT": web.url}
        environment = {**os.environ, "HF_HUB_DISABLE_XET": "1", **given}
        command = [sys.executable, "-c", code.format(revision)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)

    with serving(there, commit=COMMIT) as web:
        online = load("main", "0")
        assert online.stdout == f"{HUB_ID} at {COMMIT}, of {web.url} (HF_ENDPOINT)\n", online.stderr
    place = f"the cache {tmp_path} (HF_HUB_OFFLINE), not {web.url} (HF_ENDPOINT)"
    assert load(COMMIT, "1").stdout == f"{HUB_ID} at {COMMIT}, of {place}\n"
    assert f"UserError: {HUB_ID} at v2: no such path here, and not to be had from {place}: " in load("v2", "1").stderr
