"""Files as they come: in folders and archives, damaged, changed, hostile."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.readers import fetch
from graphrerank.utils.checks import UserError
from graphrerank_papers.builders import raw_files
from graphrerank_papers.builders.raw_files import RawFiles
from tests.support.files import zip_of
from tests.support.web import serving

LINES = b'{"a": 1, "b": 2}\n\n{"a": 3, "b": 4}\n'


def tar_of(members: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


@pytest.mark.parametrize("form", ["file", "gz", "folder", "zip", "tar"])
def test_the_same_records_from_each_form(tmp_path: Path, form: str) -> None:
    content = {
        "file": ("train.jsonl", LINES),
        "gz": ("train.jsonl.gz", gzip.compress(LINES)),
        "folder": ("deep/train.jsonl", LINES),
        "zip": ("raw.zip", zip_of({"data/train.jsonl": LINES, "__MACOSX/data/._train.jsonl": b"x"})),
        "tar": ("raw.tar.gz", tar_of({"./data/train.jsonl": LINES})),
    }
    name, raw = content[form]
    path = tmp_path / "in" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(raw)
    files = RawFiles([str(tmp_path / "in" if form == "folder" else path)], downloads=tmp_path / "downloads")
    assert files.sources() == []  # nothing is read before it is needed
    assert list(files.one("train.jsonl").records()) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert files.place.endswith("line 3")
    (source,) = files.sources()
    assert source == {"name": path.name, "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json.gz", b" " * 70_000, "104 compressed bytes must expand to at most 65,536 bytes, got more"),
        ("a.json.gz", b"[" + b"[]," * 20_000 + b"0]", "expected at most 1,024 JSON values, got up to 40,001"),
        ("a.json.gz", b'{"a": [' + b"[]," * 20_000 + b"0]}", "line 1: expected at most 1,024 JSON values"),
    ],
)
def test_a_small_file_that_holds_much_is_refused(
    tmp_path: Path, name: str, content: bytes, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw_files, "MAX_EXPANDED", 1 << 16)
    monkeypatch.setattr(raw_files, "MAX_VALUES", 1 << 10)
    (tmp_path / name).write_bytes(gzip.compress(content))
    files = RawFiles([str(tmp_path / name)], downloads=tmp_path)
    with pytest.raises(UserError, match=rf"{name}.*[:,] {message}"), files.parsing("X"):
        list(files.one("a.json").records() if content[:1] != b" " else files.one("a.json").json())


@pytest.mark.parametrize("name", ["../evil.json", "/evil.json", "a/../../evil.json", "C:/evil.json", "a\\evil.json"])
@pytest.mark.parametrize("pack", [zip_of, tar_of])
def test_a_name_that_leads_outside_refuses_the_archive(tmp_path: Path, name: str, pack: type) -> None:
    path = tmp_path / ("a.zip" if pack is zip_of else "a.tar.gz")
    path.write_bytes(pack({"good.json": b"[]", name: b"[]"}))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(
        ValueError, match=r"a\.(zip|tar\.gz): paths in an archive must be relative and stay inside it, got .*evil"
    ):
        RawFiles([str(path)], downloads=tmp_path / "downloads")
    assert sorted(tmp_path.rglob("*")) == before


def parsed(path: Path) -> Any:
    files = RawFiles([str(path)], downloads=path.parent)
    with files.parsing("a list"):
        return files.one("a.json").json()


@pytest.mark.parametrize("pack", [zip_of, tar_of, lambda members: gzip.compress(members["a.json"])])
def test_a_cut_archive_is_refused_by_name(tmp_path: Path, pack: type) -> None:
    name = {zip_of: "a.zip", tar_of: "a.tar.gz"}.get(pack, "a.json.gz")
    whole = pack({"a.json": bytes(str(list(range(5000))), "ascii")})
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=rf"{name}.*cut off"):
        parsed(tmp_path / name)


def test_missing_files_are_named_and_a_table_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none: no such file or folder"):
        RawFiles([str(tmp_path / "none")], downloads=tmp_path)
    for name in ("x/a.json", "y/a.json"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("[]")
    files = RawFiles([str(tmp_path)], downloads=tmp_path)
    with pytest.raises(ValueError, match=r"exactly one file b\.json, got no match among .*a\.json"):
        files.one("b.json")
    with pytest.raises(ValueError, match=r"exactly one file a\.json, got 2 matches"):
        files.one("a.json")
    assert files.one("x/a.json").json() == []
    (tmp_path / "a.csv").write_text('id,text\n1,"two\nlines"\n')
    table = RawFiles([str(tmp_path)], downloads=tmp_path).one("a.csv")
    assert list(table.rows()) == [{"id": "1", "text": "two\nlines"}]


def test_downloads_are_kept_and_held_against_their_checksum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSE_SECONDS", 0.0)
    sha = hashlib.sha256(LINES).hexdigest()
    downloads = tmp_path / "downloads"
    with serving({"/a.jsonl": LINES}) as web:
        location = f"{web.url}/a.jsonl?download=1#sha256={sha}"
        web.files["/a.jsonl?download=1"] = LINES
        for _ in range(2):
            assert len(list(RawFiles([location], downloads=downloads).one("a.jsonl").records())) == 2
        assert web.requests == 1
        with pytest.raises(ValueError, match=r"a\.jsonl: expected a file with sha256 0{64}, got"):
            RawFiles([f"{web.url}/a.jsonl#sha256={'0' * 64}"], downloads=tmp_path / "other")
        web.cut = [10] + [0] * 20
        with pytest.raises(ValueError, match=r"a\.jsonl could not be downloaded: .*the file is truncated"):
            RawFiles([f"{web.url}/a.jsonl"], downloads=tmp_path / "other")
    assert list((tmp_path / "other").rglob("*")) == []
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES + b"\n")
    with pytest.raises(ValueError, match=r"a\.jsonl: expected a file with sha256"):
        RawFiles([f"{path}#sha256={sha}"], downloads=downloads)
    with pytest.raises(ValueError, match="a location must be a path, or a URL"):
        RawFiles(["ftp://host/a.zip"], downloads=downloads)
