"""Downloads from a server on this machine: the oracle is the bytes that it holds."""

import hashlib
from pathlib import Path

import pytest

from graphrerank.data.readers import fetch
from graphrerank.data.readers.fetch import download
from tests.support.web import serving

CONTENT = bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)


def test_a_cut_download_is_tried_again(tmp_path: Path) -> None:
    with serving({"/a.bin": CONTENT}) as web:
        web.cut = [1000, 500]
        download(f"{web.url}/a.bin", tmp_path / "a.bin")
    assert web.requests == 3
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a.bin": CONTENT}


def test_a_file_that_stays_too_short_leaves_nothing(tmp_path: Path) -> None:
    with serving({"/a.bin": CONTENT}) as web:
        web.cut = [0, 0, 0, 0, 1000]
        with pytest.raises(OSError, match="expected 10,240 bytes, as the server announced, got 1,000"):
            download(f"{web.url}/a.bin", tmp_path / "a.bin")
    assert list(tmp_path.iterdir()) == []


def test_another_checksum_or_a_missing_file_leaves_nothing(tmp_path: Path) -> None:
    with serving({"/a.bin": CONTENT}) as web:
        with pytest.raises(OSError, match="404"):
            download(f"{web.url}/b.bin", tmp_path / "b.bin")
        assert web.requests == 1  # not again
        fetch.fetch(f"{web.url}/a.bin", f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", tmp_path).unlink()
        with pytest.raises(ValueError, match=r"a\.bin: expected a file with md5 00, got "):
            fetch.fetch(f"{web.url}/a.bin", "md5:00", tmp_path)
    assert list(tmp_path.iterdir()) == []
