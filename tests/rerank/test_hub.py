import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import PRETRAINED
from tests.support.hub import hub_stand_in
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


@pytest.fixture
def fake_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    fake = FakeHub(tmp_path / "hub")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fake.snapshot_download)
    monkeypatch.chdir(tmp_path)
    return fake


def files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_an_artifact_comes_from_the_hub(fake_hub: FakeHub) -> None:
    reranker = GraphReranker.from_pretrained("attack")
    shutil.copytree(PRETRAINED / "attack", fake_hub.folder / HUB_ID)
    again = GraphReranker.from_pretrained(HUB_ID, revision="v1")
    assert fake_hub.asked == [
        {"repo_id": HUB_ID, "revision": "v1", "allow_patterns": ["manifest.json", "model.safetensors"]}
    ]
    assert files(fake_hub.folder / "cache") == {"manifest.json", "model.safetensors"}  # no program came along
    given = {"scores": [0.5, 0.2, 0.1], "edges": [(0, 2)]}
    assert torch.equal(again.rerank("q", **given).scores, reranker.rerank("q", **given).scores)


def test_what_the_hub_does_not_have(fake_hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    there = shutil.copytree(PRETRAINED / "attack", fake_hub.folder / HUB_ID)
    manifest = json.loads((there / "manifest.json").read_text())
    manifest["retriever"]["arguments"]["bm25_weight"] = 0.9
    (there / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="the manifest has been changed"):
        GraphReranker.from_pretrained(HUB_ID)
    shutil.rmtree(fake_hub.folder / "cache")
    shutil.rmtree(there)
    with pytest.raises(
        ValueError, match=r"someone/reranker: the repository on the hub does not contain manifest\.json"
    ):
        GraphReranker.from_pretrained(HUB_ID)

    def refuse(*arguments: Any, **more: Any) -> None:
        raise huggingface_hub.errors.LocalEntryNotFoundError("offline")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ValueError, match=r"someone/reranker is not a local path .* downloaded from .*: offline"):
        GraphReranker.from_pretrained(HUB_ID)


def test_paths_come_before_the_hub(fake_hub: FakeHub, tmp_path: Path) -> None:
    for name in ("nothing", "./some/one", "/some/one", "a/b/c"):
        with pytest.raises(ValueError, match="or one of the shipped names"):
            GraphReranker.from_pretrained(name)
    shutil.copytree(PRETRAINED / "attack", tmp_path / HUB_ID)
    assert GraphReranker.from_pretrained(HUB_ID).name == "gatv2"
    with pytest.raises(ValueError, match="`revision` applies only to models on the hub"):
        GraphReranker.from_pretrained(HUB_ID, revision="v1")
    assert fake_hub.asked == []


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
        assert online.stdout == f"{HUB_ID} at {COMMIT}, from {web.url} (HF_ENDPOINT)\n", online.stderr
    place = f"the cache {tmp_path} (HF_HUB_OFFLINE), not {web.url} (HF_ENDPOINT)"
    assert load(COMMIT, "1").stdout == f"{HUB_ID} at {COMMIT}, from {place}\n"
    assert (
        f"UserError: {HUB_ID} at v2 is not a local path and could not be downloaded from {place}: "
        in load("v2", "1").stderr
    )


ROUND_TRIP = """
import sys
from graphrerank import GraphReranker
from graphrerank.cli.push import main
reranker = GraphReranker.from_pretrained("base")
if sys.argv[1] == "python":
    print(reranker.push_to_hub("someone/reranker", license_name="mit"))
else:
    main(["attack", "someone/attack", "--license", "mit", "--public"])
again = GraphReranker.from_pretrained(f"someone/{'reranker' if sys.argv[1] == 'python' else 'attack'}")
print(again.rerank("q", ["a", "b", "q"], edges=[(0, 2)]).scores.tolist())
"""


@pytest.mark.slow  # two processes
@pytest.mark.parametrize("way", ["python", "command"])
def test_a_round_trip_over_http(way: str, tmp_path: Path) -> None:
    with hub_stand_in() as hub:
        settings = {"HF_HUB_CACHE": str(tmp_path), "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_x"}
        environment = {**os.environ, "HF_HUB_DISABLE_XET": "1", **settings}
        done = subprocess.run(
            [sys.executable, "-c", ROUND_TRIP, way], capture_output=True, text=True, env=environment, check=False
        )
    assert done.returncode == 0, done.stderr
    name = "base" if way == "python" else "attack"
    expected = GraphReranker.from_pretrained(name).rerank("q", ["a", "b", "q"], edges=[(0, 2)]).scores.tolist()
    address, scores = done.stdout.splitlines()[-2:]
    assert address.endswith(f"{hub.url}/someone/{'reranker' if way == 'python' else 'attack'}")
    assert json.loads(scores) == expected
    (files,) = hub.repositories.values()
    assert {"README.md", "manifest.json", "model.safetensors"} <= files.keys()
    assert files["README.md"].startswith(b'---\nlicense: "mit"\n')
    (request,) = hub.requests
    assert request["visibility"] == ("private" if way == "python" else "public")


def test_an_upload_that_the_environment_forbids_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"^someone/reranker cannot be uploaded, because HF_HUB_OFFLINE is set"):
        GraphReranker.from_pretrained("attack").push_to_hub("someone/reranker", license_name="mit")


def test_names_that_are_no_repository_are_refused(fake_hub: FakeHub) -> None:
    for name in ("nothing", "./some/one", "a/b/c"):
        with pytest.raises(ValueError, match="`repo_id` must be owner/name"):
            GraphReranker.from_pretrained("attack").push_to_hub(name, license_name="mit")


@pytest.mark.parametrize("attack", ["link", "changed"])
def test_a_changed_artifact_is_not_uploaded(attack: str, tmp_path: Path) -> None:
    folder = shutil.copytree(PRETRAINED / "attack", tmp_path / "copy")
    reranker = GraphReranker.from_pretrained(folder)
    if attack == "changed":
        (folder / "model.pt").write_bytes(b"changed since")
    else:
        (folder / "model.pt").rename(tmp_path / "secret")
        (folder / "model.pt").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match={"link": "link", "changed": "SHA-256"}[attack]):
        reranker.push_to_hub(HUB_ID, license_name="mit")
