"""Atomic writes: a file is written under a temporary name next to the target, synced, then renamed.

Nothing else in this package writes a file that is kept (``tests/test_writers.py``).
"""

import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from graphrerank.utils.checks import UserError

CHECKSUM = "checksum"  # key of a file's metadata
TEMPORARY_SUFFIX = ".tmp"
TEMPORARY = re.compile(r"\..+\.(?P<process>\d+)-(?P<start>\d+)-[a-z0-9_]+\.tmp", re.DOTALL)
NAME_BYTES = 150  # of a target's name in that of its temporary file, as a name may have 255
_CLEANED: set[Path] = set()  # folders in which this process has deleted leftovers


@contextmanager
def atomic_path(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary path next to ``path``; rename it to ``path`` if the block succeeds, else delete it.

    What a process that was killed left in the folder is deleted first (:func:`remove_leftovers`).

    Args:
        path: The file to write.
        mode: Permissions of the file. Until it is complete, only its owner can read it.

    Yields:
        The temporary path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers_once(path.parent)
    handle, name = tempfile.mkstemp(prefix=_temporary_prefix(path.name), suffix=TEMPORARY_SUFFIX, dir=path.parent)
    temporary = Path(name)
    try:
        try_lock(handle)
        with naming(path):
            yield temporary
            temporary.chmod(mode)
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def temporary_folder(parent: Path | None = None, name: str = "graphrerank") -> Iterator[Path]:
    """Yield a new hidden folder, which is deleted at the end of the block.

    If this process is killed in the block, the next one that needs a temporary folder in ``parent`` deletes it
    (:func:`remove_leftovers`).

    Args:
        parent: Folder in which it is made. If None, the system's folder for temporary files.
        name: Begins the name of the folder.

    Yields:
        The folder, which only its owner can read.
    """
    parent = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_leftovers_once(parent)
    with tempfile.TemporaryDirectory(
        prefix=_temporary_prefix(name), suffix=TEMPORARY_SUFFIX, dir=parent, ignore_cleanup_errors=True
    ) as folder:
        handle = os.open(folder, os.O_RDONLY)
        try:
            try_lock(handle)
            yield Path(folder)
        finally:
            os.close(handle)


def remove_leftovers(folder: Path, *, depth: int = 0) -> int:
    """Delete the temporary files and folders in a folder that processes left there which were killed.

    Those of this user alone are deleted, and only if their process has ended, by its number and start time in their
    names, and if nobody holds their lock, as another container with other numbers of processes may.

    Args:
        folder: Folder in which to look. One that is missing or cannot be read is skipped.
        depth: Number of levels of folders below it in which to look too.

    Returns:
        Number of files and folders that were deleted.
    """
    count = 0
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return 0
    for entry in entries:
        if match := TEMPORARY.fullmatch(entry.name):
            count += not _process_runs(int(match["process"]), match["start"]) and _remove_unlocked(Path(entry.path))
        elif depth and entry.is_dir(follow_symlinks=False):
            count += remove_leftovers(Path(entry.path), depth=depth - 1)
    return count


def _remove_leftovers_once(folder: Path) -> None:
    """Call :func:`remove_leftovers` for a folder the first time that this process writes there."""
    folder = folder.absolute()
    if folder not in _CLEANED:
        _CLEANED.add(folder)
        remove_leftovers(folder)


def _temporary_prefix(name: str) -> str:
    """Return the beginning of a temporary name: hidden, with the number and start time of this process."""
    first = name.encode()[:NAME_BYTES].decode(errors="ignore")
    return f".{first}.{os.getpid()}-{_start_time(os.getpid()) or 0}-"


def _start_time(process: int) -> str | None:
    """Return when a process started, in ticks since the machine did. None if it does not run, or on other systems."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]  # field 22 of proc(5); the name in brackets may have blanks


def _process_runs(process: int, start: str) -> bool:
    """Return whether the process of this number that started at this time still runs."""
    if Path("/proc/self/stat").is_file():
        return _start_time(process) == start
    if os.name != "posix":
        return True  # signal 0 would end it
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _remove_unlocked(path: Path) -> bool:
    """Delete a file or folder of this user that nobody has locked; return whether it was."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return False
    try:
        status = os.fstat(handle)
        if status.st_uid != os.geteuid() or not try_lock(handle):
            return False
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            path.unlink(missing_ok=True)
        return not path.exists()
    finally:
        os.close(handle)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name a file in an OSError that names none, as when the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    except (SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):  # of torch.save
            raise
        raise OSError(f"{path}: cannot be written, as on a full disk: {error}") from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``folder``; move it there if the block succeeds, else delete it.

    If it cannot be moved, an older folder is restored. What a process that was killed left there is deleted first
    (:func:`remove_leftovers`).
    """
    parent = next(path for path in folder.absolute().parents if path.is_dir())
    with temporary_folder(parent, folder.name) as work:
        new, old = work / "new", work / "old"
        new.mkdir()
        with naming(folder):
            yield new
            for path in (*new.rglob("*"), new):
                _sync(path)
        folder.parent.mkdir(parents=True, exist_ok=True)
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        _sync(folder.parent)


def _sync(path: Path) -> None:
    """Flush a file's content, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def claim_folder(folder: Path) -> Path:
    """Make a new folder of this name, or with the first free number after it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        claimed = folder if number == 1 else folder.with_name(f"{folder.name}_{number}")
        with suppress(FileExistsError):
            claimed.mkdir()
            return claimed
    raise AssertionError


def try_lock(handle: int) -> bool:
    """Lock an open file or folder until its descriptor is closed or this process ends.

    Args:
        handle: The descriptor.

    Returns:
        Whether it is locked now. False if another descriptor holds the lock, or if this system or its file system has
        no such locks, so that an unlocked file is never mistaken for one that nobody uses.
    """
    try:
        import fcntl  # not on Windows

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


class FolderInUseError(UserError):
    """Another process writes to a folder."""


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder, made if missing, against other processes until the block or this process ends.

    Another process that writes is waited for with ``wait``, else it is a :class:`FolderInUseError`.
    """
    import fcntl  # not on Windows

    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            message = f"{folder}: another command writes to this folder now; choose another one"
            raise FolderInUseError(message) from error
        yield
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """Check that a folder can be written, before the work whose result it gets; a ValueError if not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        raise UserError(
            f"{folder}: cannot be written ({error}); set paths.cache, or GRAPHRERANK_CACHE, to a folder that can"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    write_chunks(path, [text.encode()])


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    write_chunks(path, [content])


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file piece by piece, atomically; return its SHA-256."""
    sha = hashlib.sha256()
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for chunk in chunks:
            sha.update(chunk)
            file.write(chunk)
        file.flush()
    return sha.hexdigest()


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, or with ``os.O_DIRECTORY`` a folder, of a folder that others may have made.

    Args:
        path: The file or folder.
        flags: How to open it, as for ``os.open``.

    Returns:
        The descriptor, which the caller closes.

    Raises:
        ValueError: If it is something else, or a symbolic link, which is not followed; or if it is opened for writing
            and has another name (a hard link), which may be that of a file of the user.
    """
    try:
        handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if path.is_symlink():
            raise UserError(f"{path}: must not be a symbolic link, which may lead to a file of yours") from error
        raise
    wanted = stat.S_ISDIR if flags & getattr(os, "O_DIRECTORY", 0) else stat.S_ISREG
    found = os.fstat(handle)
    if not wanted(found.st_mode):
        os.close(handle)
        raise UserError(f"{path}: must be a {'folder' if wanted is stat.S_ISDIR else 'regular file'}")
    if flags & (os.O_WRONLY | os.O_RDWR) and found.st_nlink > 1:
        os.close(handle)
        raise UserError(
            f"{path}: must have one name to be written to, has {found.st_nlink} (hard links), of which another may be "
            "a file of yours; copy its folder without links, and use the copy"
        )
    return handle


def append_bytes(path: Path, size: int, content: bytes | memoryview, *, sync: bool = True) -> None:
    """Append to the first ``size`` bytes of a file (:func:`open_plain`), and flush it to the disk.

    Without ``sync`` the bytes survive the end of this process, however it ends, but not that of the machine.

    Bytes beyond ``size`` are left over from an interrupted write and are overwritten. If the disk is full, an OSError
    names the file, which then has ``size`` bytes again.
    """
    with naming(path), os.fdopen(open_plain(path, os.O_RDWR), "r+b", buffering=0) as file:
        file.truncate(size)
        file.seek(size)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[file.write(rest) :]
            if sync:
                os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def new_private_file(path: Path) -> None:
    """Make an empty file that only its owner may read; an OSError if it is there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def blank_lines(path: Path, is_blanked: Callable[[bytes], bool]) -> int:
    """Overwrite some lines of a file, to which a process may append, with blanks; return their number."""
    count, start = 0, 0
    with naming(path), os.fdopen(open_plain(path, os.O_RDWR), "r+b") as file:
        while (line := file.readline()).endswith(b"\n"):
            if line.strip() and is_blanked(line):
                file.seek(start)
                file.write(b" " * (len(line) - 1) + b"\n")
                count += 1
            start += len(line)
        file.flush()
        os.fsync(file.fileno())
    return count


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically; numbers that are NaN or infinite, which JSON does not have, become null."""
    write_text(path, json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n")


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object of a cache atomically, with a checksum as its last entry."""
    crc = zlib.crc32(json.dumps(content).encode())
    write_text(path, json.dumps({**content, CHECKSUM: crc}, ensure_ascii=False) + "\n")


def read_checked_json(path: Path) -> dict[str, Any]:
    """Read a file of :func:`write_checked_json`, or of an older version, without a checksum; damage is a ValueError."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        written = content.pop(CHECKSUM, None)
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: damaged cache ({error}); delete this file and run again") from error
    if written not in (None, zlib.crc32(json.dumps(content).encode())):
        raise UserError(f"{path}: damaged cache (its checksum is another); delete this file and run again")
    return content


def write_json_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON object a line atomically; numbers as :func:`write_json`."""
    write_text(path, "".join(f"{json.dumps(without_nan(line), ensure_ascii=False)}\n" for line in lines))


def save_figure(path: Path, figure: Any) -> None:
    """Write a figure of matplotlib as PNG, atomically."""
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write named tensors as one safetensors file, atomically, with a checksum in its metadata."""
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with atomic_path(path) as temporary:
        save_file(tensors, temporary, {CHECKSUM: _checksum(tensors)})


def load_tensors(path: Path, names: tuple[str, ...] | None = None) -> dict[str, Tensor]:
    """Map the tensors of :func:`save_tensors` and compare their checksum, which files of older versions lack.

    A ValueError if the file is damaged or holds others than ``names``.
    """
    tensors, written = map_tensors(path)
    if written not in (None, _checksum(tensors)):
        raise UserError(f"{path}: damaged cache (its checksum is another); delete this file and run again")
    if names is not None and set(tensors) != set(names):
        raise UserError(f"{path}: needed the tensors {sorted(names)}, found {sorted(tensors)}; delete this file")
    return tensors


def map_tensors(path: Path) -> tuple[dict[str, Tensor], str | None]:
    """Map the tensors of a safetensors file, and read their checksum, if any, without comparing it."""
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.offset_keys()}
            return tensors, (file.metadata() or {}).get(CHECKSUM)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: damaged cache ({error}); delete this file and run again") from error


def _checksum(tensors: Mapping[str, Tensor]) -> str:
    """CRC-32 of names, types, shapes and numbers, which any flipped bit changes; 2.4 GB/s (SHA-256: 0.9 GB/s)."""
    crc = 0
    for name, tensor in sorted(tensors.items()):
        crc = zlib.crc32(repr((name, tensor.dtype, tuple(tensor.shape))).encode(), crc)
        flat = tensor.detach().cpu().flatten()
        crc = zlib.crc32(flat.as_strided(flat.shape, (1,)).view(torch.uint8).numpy().data, crc)
    return f"{crc:08x}"


def without_nan(content: Any) -> Any:
    """Return content for JSON, in which numbers that are NaN or infinite are None."""
    if isinstance(content, Mapping):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def hash_model(model: str, revision: str | None, kinds: Collection[str]) -> str:
    """Identify a model: SHA-256 of a local folder's files with suffixes ``kinds``; id and revision of a hub model."""
    folder = Path(model)
    if not folder.is_dir():
        return f"{model}@{revision}"
    return hash_files(sorted(file for file in folder.rglob("*") if file.suffix in kinds))


def hash_json(content: Any) -> str:
    """Hash what JSON can write, to 12 hexadecimal digits; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def hash_files(files: Sequence[Path]) -> str:
    """SHA-256 of names and contents; of the content alone for a single file."""
    sha = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            sha.update(file.name.encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                sha.update(block)
    return sha.hexdigest()
