import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from graphrerank.utils import caching
from graphrerank.utils.caching import BlobStore, TensorStore, fill, hash_text

ITEMS = ["ccc", "a", "bb", "a", "dddd"]
KEYS = [hash_text(item) for item in ITEMS]


class Lengths:
    """Computes lengths, and keeps the shards that it was asked for."""

    def __init__(self, *, stop_after: int = 100) -> None:
        self.stop_after = stop_after
        self.shards: list[list[str]] = []

    def tensors(self, items: list[str]) -> Tensor:
        return torch.tensor([[float(len(item))] for item in self._note(items)])

    def blobs(self, items: list[str]) -> list[bytes]:
        return [bytes([len(item)]) for item in self._note(items)]

    def _note(self, items: list[str]) -> list[str]:
        if len(self.shards) == self.stop_after:
            raise KeyboardInterrupt
        self.shards.append(items)
        return items


def fill_store(kind: str, folder: Path, lengths: Lengths, items: Sequence[str] = ITEMS) -> None:
    keys = [hash_text(item) for item in items]
    if kind == "blobs":
        fill(BlobStore(folder / "lengths.sqlite", "lengths"), keys, items, lengths.blobs, shard_size=2)
    else:
        fill(TensorStore(folder), keys, items, lengths.tensors, shard_size=2)


def test_missing_items_come_once_in_shards_by_length() -> None:
    for length, expected in ((None, [["ccc", "a"], ["bb", "dddd"]]), (len, [["a", "bb"], ["ccc", "dddd"]])):
        lengths, store = Lengths(), BlobStore(None, "lengths")
        fill(store, KEYS, ITEMS, lengths.blobs, shard_size=2, length=length)
        assert lengths.shards == expected
        assert [store.contents[key] for key in KEYS] == [b"\3", b"\1", b"\2", b"\1", b"\4"]


@pytest.mark.parametrize("kind", ["blobs", "tensors"])
def test_a_stopped_run_continues_from_its_shards(tmp_path: Path, kind: str) -> None:
    stopped, resumed, third = Lengths(stop_after=1), Lengths(), Lengths()
    with pytest.raises(KeyboardInterrupt):
        fill_store(kind, tmp_path, stopped)
    fill_store(kind, tmp_path, resumed)
    fill_store(kind, tmp_path, third)
    assert (stopped.shards, resumed.shards, third.shards) == ([["ccc", "a"]], [["bb", "dddd"]], [])


def test_one_store_finds_what_another_added(tmp_path: Path) -> None:
    first, second = TensorStore(tmp_path), TensorStore(tmp_path)
    fill(first, KEYS[:2], ITEMS[:2], Lengths().tensors, shard_size=9)
    fill(second, KEYS, ITEMS, Lengths().tensors, shard_size=9)
    late = Lengths()
    fill(first, KEYS, ITEMS, late.tensors, shard_size=9)
    assert late.shards == []
    assert first.rows(KEYS).tolist() == second.rows(KEYS).tolist() == [[3], [1], [2], [1], [4]]


def test_a_damaged_blob_is_computed_again_and_one_of_an_older_version_is_read(tmp_path: Path) -> None:
    path = tmp_path / "lengths.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("CREATE TABLE lengths (key BLOB PRIMARY KEY, content BLOB) WITHOUT ROWID")
        file.execute("INSERT INTO lengths VALUES (?, ?)", (KEYS[0], b"old"))
    store = BlobStore(path, "lengths")
    store.add(KEYS[1:3], [b"a", b"b"])
    with sqlite3.connect(path) as file:
        file.execute("UPDATE lengths SET content = x'63' WHERE key = ?", (KEYS[2],))
    with pytest.warns(UserWarning, match=r"lengths\.sqlite: damaged row; the entry is computed again"):
        assert BlobStore(path, "lengths").stored(KEYS) == {KEYS[0]: b"old", KEYS[1]: b"a"}
    store.add(KEYS[2:3], [b"b"])
    assert BlobStore(path, "lengths").stored(KEYS) == {KEYS[0]: b"old", KEYS[1]: b"a", KEYS[2]: b"b"}


def test_blobs_are_looked_up_in_several_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caching, "LOOKED_UP", 2)
    store = BlobStore(tmp_path / "lengths.sqlite", "lengths")
    fill(store, KEYS, ITEMS, Lengths().blobs, shard_size=9)
    assert BlobStore(store.path, "lengths").stored(KEYS) == store.contents


def test_an_older_blob_stays_and_none_is_not_kept(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "lengths.sqlite", "lengths")
    store.add(KEYS[:2], [b"old", None])
    store.add(KEYS[:3], [b"new", b"a", b"b"])
    assert BlobStore(store.path, "lengths").stored(KEYS) == dict(zip(KEYS[:3], [b"old", b"a", b"b"], strict=True))


def test_a_failed_write_leaves_none_of_its_rows(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "lengths.sqlite", "lengths")
    store.add([], [])
    with sqlite3.connect(tmp_path / "lengths.sqlite") as file:
        refusal = "BEGIN SELECT RAISE(ABORT, 'disk full'); END"
        file.execute(f"CREATE TRIGGER full BEFORE INSERT ON lengths WHEN new.content = x'62' {refusal}")
    with pytest.raises(ValueError, match=r"lengths\.sqlite: .*disk full"):
        store.add(KEYS[:3], [b"a", b"c", b"b"])
    with sqlite3.connect(tmp_path / "lengths.sqlite") as file:
        assert file.execute("SELECT count(*) FROM lengths").fetchone() == (0,)


def test_rows_are_read_as_float32() -> None:
    store = BlobStore(None, "rows")
    store.add(KEYS[:2], [np.array(row, dtype="<f2").tobytes() for row in ([1.5, 2], [3, -4])])
    rows = store.rows([KEYS[1], KEYS[0], KEYS[1]], 2, np.dtype("<f2"))
    assert (rows.dtype, rows.tolist()) == (torch.float32, [[3, -4], [1.5, 2], [3, -4]])
    assert store.rows([], 2, np.dtype("<f2")).shape == (0, 2)
    with pytest.raises(ValueError, match=r"damaged cache \(expected rows of 6 bytes, got one of 4\)"):
        store.rows(KEYS[:1], 3, np.dtype("<f2"))
    store.add(KEYS[2:3], [b""])
    with pytest.raises(ValueError, match=r"got one of 0\)"):
        store.rows(KEYS[2:3], 2, np.dtype("<f2"))


@pytest.mark.parametrize("kind", ["blobs", "tensors"])
def test_a_cache_that_cannot_be_written_computes_nothing(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it was encoded for half a minute first."""
    again = Lengths()
    fill_store(kind, tmp_path, Lengths())

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    fill_store(kind, tmp_path, again)  # all of it is there
    with pytest.raises(ValueError, match=r"cannot be written \(.*Read-only file system.*set paths\.cache"):
        fill_store(kind, tmp_path, again, [*ITEMS, "more"])
    assert again.shards == []
