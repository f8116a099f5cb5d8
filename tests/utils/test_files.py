import hashlib
import json
import math
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from graphrerank.training.callbacks import AtomicCheckpoints
from graphrerank.utils import files
from graphrerank.utils.files import (
    append_bytes,
    atomic_folder,
    atomic_path,
    check_writable,
    claim_folder,
    hash_files,
    read_checked_json,
    remove_leftovers,
    sole_use,
    try_lock,
    write_bytes,
    write_checked_json,
    write_json,
    write_text,
)
from graphrerank.utils.tensor_files import load_tensors, save_tensors


def test_failure_leaves_the_old_content_and_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "results.txt"
    write_text(path, "old")

    def half_written() -> None:
        with atomic_path(path) as temporary:
            temporary.write_text("new, but not wh")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half_written()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_synced_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, synced, fsync = tmp_path / "deep" / "results.txt", [], os.fsync

    def note(handle: int) -> None:
        synced.append((os.fstat(handle).st_ino, path.exists()))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    write_bytes(path, b"whole")
    assert path.read_bytes() == b"whole"
    assert synced == [(path.stat().st_ino, False), (path.parent.stat().st_ino, True)]  # renamed, not copied
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("num_bytes", "settled_nanoseconds", "num_reads"), [(5, -(10**18), 1), (6, -(10**18), 2), (5, 10**18, 2)]
)
def test_a_large_file_that_does_not_change_is_hashed_once(
    num_bytes: int, settled_nanoseconds: int, num_reads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are small or have just changed are read each time."""
    path, opened, open_path = tmp_path / "weights", [], Path.open

    def note(file: Path, mode: str) -> Any:
        opened.append(file)
        return open_path(file, mode)

    monkeypatch.setattr(files, "REMEMBERED_BYTES", num_bytes)
    monkeypatch.setattr(files, "SETTLED_NANOSECONDS", settled_nanoseconds)
    path.write_bytes(b"whole")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", note)
        assert hash_files([path]) == hash_files([path]) == hashlib.sha256(b"whole").hexdigest()
    assert opened == [path] * num_reads
    path.write_bytes(b"another")
    assert hash_files([path]) == hashlib.sha256(b"another").hexdigest()


def test_tensors_round_trip(tmp_path: Path) -> None:
    tensors = {"a": torch.rand(3, 4).T, "b": torch.arange(5)}  # one is not contiguous
    path = tmp_path / "t.safetensors"
    save_tensors(path, tensors)
    loaded = load_tensors(path, ("b", "a"))
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    """And a file without a checksum, of an older version, is read."""
    path = tmp_path / "t.safetensors"
    tensors = {"a": torch.rand(3, dtype=torch.bfloat16), "b": torch.tensor(True), "c": torch.zeros(0, 2)}
    save_file(tensors, path)
    assert torch.equal(load_tensors(path)["a"], tensors["a"])
    save_tensors(path, tensors)
    content = path.read_bytes()
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with suppress(ValueError):
            found = load_tensors(path, ("a", "b", "c"))  # a bit of the padding, or of the word `checksum`
            assert all(torch.equal(found[name], tensors[name]) for name in tensors)
            assert all(found[name].dtype == tensors[name].dtype for name in tensors)


def test_json_of_a_cache(tmp_path: Path) -> None:
    path, content = tmp_path / "a.json", {"a": [0.1, math.nan], "b": {"ä": None}}
    write_checked_json(path, content)
    assert repr(read_checked_json(path)) == repr(content)
    text = path.read_text(encoding="utf-8")
    for damaged in (text.replace("0.1", "0.3"), text[:-4], "[]"):
        path.write_text(damaged, encoding="utf-8")
        with pytest.raises(ValueError, match=r"a\.json: damaged cache"):
            read_checked_json(path)
    path.write_text('{"a": 1}', encoding="utf-8")  # of an older version
    assert read_checked_json(path) == {"a": 1}


@pytest.mark.parametrize("damage", ["empty", "cut", "noise", "missing"])
def test_damaged_tensors_are_refused_by_name(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "t.safetensors"
    save_tensors(path, {"a": torch.rand(100)})
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": content[:-9], "noise": b"\xff" * 99}[damage])
    with pytest.raises(ValueError, match=r"t\.safetensors: damaged cache .*; delete this file and run again"):
        load_tensors(path, ("a",))


def test_json_without_what_json_does_not_know(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"a": [1, math.nan, (True, "NaN")], "b": {"c": -math.inf, "d": 0.5, "e": None}})
    text = (tmp_path / "a.json").read_text(encoding="utf-8")
    expected = {"a": [1, None, [True, "NaN"]], "b": {"c": None, "d": 0.5, "e": None}}
    assert json.loads(text, parse_constant=pytest.fail) == expected


def test_an_older_folder_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rename = tmp_path / "a", Path.rename
    folder.mkdir()
    (folder / "b.txt").write_text("old")

    def failing(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise OSError("no space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="no space left"), atomic_folder(folder) as temporary:
        (temporary / "b.txt").write_text("new")
    assert (folder / "b.txt").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let writes beyond a size of a file fail, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def in_folder(path: Path) -> None:
    with atomic_folder(path) as temporary, (temporary / "b").open("wb") as file:
        file.write(bytes(1 << 16))


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_text(path, "x" * (1 << 16)),
        lambda path: save_tensors(path, {"a": torch.zeros(1 << 16)}),
        lambda path: AtomicCheckpoints().save_checkpoint({"a": torch.zeros(1 << 16)}, path),
        lambda path: append_bytes(path, 3, bytes(1 << 16)),
        in_folder,
    ],
)
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, write: Callable[[Path], None]) -> None:
    path = tmp_path / "a"
    if write is not in_folder:
        path.write_bytes(b"old")
    with small_disk(1 << 12), pytest.raises(OSError, match=str(path)):
        write(path)
    assert [(file, file.read_bytes()) for file in tmp_path.iterdir()] == (
        [] if write is in_folder else [(path, b"old")]
    )


def test_a_folder_belongs_to_one_alone(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        claimed = list(pool.map(claim_folder, [tmp_path / "runs" / "a"] * 8))
    assert len(set(claimed)) == 8
    with sole_use(tmp_path / "new"):
        with (
            pytest.raises(ValueError, match=r"new: another command is writing to this folder"),
            sole_use(tmp_path / "new"),
        ):
            pass
        with sole_use(tmp_path / "other"):
            pass
    with sole_use(tmp_path / "new"):
        assert list((tmp_path / "new").iterdir()) == []


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"cache cannot be written \(.*\); set paths\.cache"):
        check_writable(tmp_path / "file" / "cache")
    check_writable(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


KILLED = """
import os, sys, time
from pathlib import Path
from graphrerank.utils.files import atomic_folder, atomic_path, temporary_folder
kind, target = sys.argv[1], Path(sys.argv[2])
make = {"folder": atomic_folder, "file": atomic_path, "work": lambda path: temporary_folder(path.parent)}[kind]
with make(target) as path:
    (path / "half" if path.is_dir() else path).write_text("half")
    print("ready", flush=True)
    if sys.argv[3] == "killed":
        os.kill(os.getpid(), 9)
    sys.stdin.read()
"""


def start(kind: str, target: Path, end: str) -> subprocess.Popen[str]:
    """Start a process that writes to a target, and wait until it has begun."""
    command = [sys.executable, "-c", KILLED, kind, str(target), end]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("kind", ["folder", "file", "work"])
def test_what_a_killed_process_leaves_is_deleted_at_the_next_start(tmp_path: Path, kind: str) -> None:
    """And what belongs to a process that still runs is not, by its number and start time."""
    process = start(kind, tmp_path / "target", "killed")
    assert process.wait() == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".")
    running = start(kind, tmp_path / "target", "runs")
    (in_use,) = tmp_path.iterdir()  # the new process deleted the leftover
    assert in_use != left
    assert remove_leftovers(tmp_path) == 0
    running.communicate("")
    assert running.returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ([] if kind == "work" else ["target"])


def test_a_lock_protects_what_a_process_with_an_unknown_number_writes(tmp_path: Path) -> None:
    """As one of another container does, whose numbers mean nothing here; and its number may be taken by another one."""
    path = tmp_path / f".data.{os.getpid()}-1-abcdefgh.tmp"  # this number, with another start time
    path.mkdir()
    handle = os.open(path, os.O_RDONLY)
    assert try_lock(handle)
    assert remove_leftovers(tmp_path) == 0
    assert path.is_dir()
    os.close(handle)
    assert remove_leftovers(tmp_path) == 1
    assert not path.exists()


def test_only_our_own_names_are_deleted_and_no_link_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").write_text("x")
    (tmp_path / ".link.4194305-1-abcdefgh.tmp").symlink_to(target)
    for name in (".notes.tmp", "a.4194305-1-abcdefgh.tmp", ".a.4194305-1-abcdefgh.txt", ".b.123.tmp"):
        (tmp_path / name).write_text("x")
    os.mkfifo(tmp_path / ".pipe.4194305-1-abcdefgh.tmp")
    before = sorted(tmp_path.iterdir())
    assert remove_leftovers(tmp_path) == 0
    assert sorted(tmp_path.iterdir()) == before
    assert (target / "file").is_file()
    assert remove_leftovers(tmp_path / "missing") == 0


def test_leftovers_in_earlier_run_folders_are_deleted(tmp_path: Path) -> None:
    run = tmp_path / "learn" / "2026-01-01"
    left = [run / ".artifact.4194305-1-abcdefgh.tmp", run / "model" / ".last.ckpt.4194305-1-abcdefgh.tmp"]
    for path in left:
        path.mkdir(parents=True)
        (path / "model.pt").write_text("half")
    assert remove_leftovers(tmp_path / "learn", depth=2) == 2
    assert list(run.iterdir()) == [run / "model"]


def test_long_names_have_short_temporary_names(tmp_path: Path) -> None:
    write_text(tmp_path / ("\u00e9" * 120), "x")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["x"]
