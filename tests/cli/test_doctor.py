import sys
from importlib.metadata import distributions
from pathlib import Path

import pytest

from graphrerank.cli.doctor import examination
from graphrerank.utils.caching import cache_folder


def test_it_tells_versions_extras_device_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "a").write_bytes(bytes(2_000_000))
    monkeypatch.setitem(sys.modules, "wandb", None)
    monkeypatch.setitem(sys.modules, "lightning", None)
    lines = examination({"GRAPHRERANK_CACHE": str(tmp_path)}).splitlines()
    assert any(line.startswith("torch ") for line in lines)
    assert any(line.startswith("device: ") for line in lines)
    assert any(line.split()[:2] == ["wandb", "missing"] for line in lines)
    of_cuda = "yes" if any(distributions(name="faiss-gpu-cu12")) else "missing"  # whatever [faiss] installs as `faiss`
    assert any(line.split()[:2] == ["gpu", of_cuda] for line in lines)
    train = next(place for place, line in enumerate(lines) if line.split()[:1] == ["train"])
    assert lines[train].split()[1] == "partly"
    assert "lightning" in lines[train + 1]
    assert max(len(line) for line in lines if "without" in line) <= 80
    assert f"cache: {tmp_path}, 2.0 MB" in "\n".join(lines)
    assert f"rm -r {tmp_path}" in lines[-1]
    assert "empty" in examination({"GRAPHRERANK_CACHE": str(tmp_path / "none")}).splitlines()[-1]


def test_the_cache_is_the_one_of_conf() -> None:
    """Against conf/paths/default.yaml."""
    from omegaconf import OmegaConf

    from tests.support import CONF

    assert str(cache_folder({"HOME": "/home/me"})) == "/home/me/.cache/graphrerank"
    text = str(OmegaConf.to_container(OmegaConf.load(CONF / "paths" / "default.yaml"))["cache"])
    assert text == "${oc.env:GRAPHRERANK_CACHE,${oc.env:HOME,.}/.cache/graphrerank}"
