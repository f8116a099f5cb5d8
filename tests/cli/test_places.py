from pathlib import Path

import pytest
from omegaconf import OmegaConf

from graphrerank.cli.places import Places


def test_what_a_command_names_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "runs" / "1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SOMEWHERE", str(tmp_path))
    settings = {
        "encoder": {"model": "model", "name": "not here"},
        "systems": [str(tmp_path / "runs" / "1"), "out/{dataset}.trec"],
        "pipeline": {"base_url": "http://localhost:8000/v1", "other": "http://me:secret@localhost"},
        "data": {"path": "nowhere/at/all", "datasets": "${oc.env:SOMEWHERE}"},
    }
    Places("cache").remember(OmegaConf.create(settings))
    again = Places(tmp_path / "cache")
    for text in ("model", str(tmp_path / "model"), "runs/1", "./runs/../runs/1", "out/{dataset}.trec"):
        assert again.knows(text)
        again.check("key", text)
    assert again.knows("http://localhost:8000/v1")
    assert not any(b"secret" in file.read_bytes() for file in (tmp_path / "cache" / "places").iterdir())
    for text in ("nowhere/at/all", "not here", str(tmp_path), "http://me:secret@localhost", "${oc.env:SOMEWHERE}"):
        assert not again.knows(text)
    monkeypatch.chdir("/")
    assert not again.knows("model")


@pytest.mark.parametrize(
    "text", ["a/b", "/etc/passwd", "..", "~", "~/x", ".hidden", "a\\b", "a\0b", "http://x", "x" * 9000 + "/"]
)
def test_a_place_that_nobody_named_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"`data\.path` of a file names .* name it yourself: data\.path="):
        Places(tmp_path).check("data.path", text)


@pytest.mark.parametrize("text", ["", "attack", "train[:90%]", "x" * 9000, "nDCG@10"])
def test_what_is_no_place_passes(tmp_path: Path, text: str) -> None:
    Places(tmp_path).check("split", text)


def test_a_cache_that_cannot_be_written_remembers_nothing(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    Places(tmp_path / "cache").remember(OmegaConf.create({"path": str(tmp_path)}))
    assert not Places(tmp_path / "cache").knows(str(tmp_path))
