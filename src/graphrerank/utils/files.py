"""Atomic writes: each file is written under a temporary name next to its target, synced, and then renamed.

All other modules of this package write permanent files through this one (checked by ``tests/test_writers.py``).
"""

import hashlib
import json
import math
import os
import re
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError

from graphrerank.utils.checks import UserError

CHECKSUM = "checksum"  # Key of the checksum in a file's metadata.
TEMPORARY_SUFFIX = ".tmp"
TEMPORARY = re.compile(r"\..+\.(?P<process>\d+)-(?P<start>\d+)-[a-z0-9_]+\.tmp", re.DOTALL)
NAME_BYTES = 150  # Bytes of the target's name in the temporary name. File systems allow 255 bytes in total.
#: Smallest total size in bytes of files whose hash :func:`hash_files` remembers.
REMEMBERED_BYTES = 4_000_000
#: Age of the last change in nanoseconds from which on a hash is remembered. File systems date changes with a coarse
#: clock, so a second change right after the first one may leave the dates as they are.
SETTLED_NANOSECONDS = 2_000_000_000
_HASHES: dict[tuple["_FileVersion", ...], str] = {}  # SHA-256 of large files that this process has hashed
_CLEANED: set[Path] = set()  # Folders in which this process has already deleted leftovers.


@contextmanager
def atomic_path(path: Path, *, mode: int = 0o644) -> Iterator[Path]:
    """Yield a temporary path next to ``path``, and rename it to ``path`` if the block succeeds.

    If the block raises, the temporary file is deleted. Temporary files of killed processes in the same folder are
    deleted first (:func:`remove_leftovers`).

    Args:
        path: File to write. Its folder is created if missing.
        mode: Permissions of the complete file. Only the owner can read the temporary file.

    Yields:
        Temporary path.
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
    """Yield a new hidden folder, and delete it at the end of the block.

    If this process is killed in the block, the next process that needs a temporary folder in ``parent`` deletes the
    folder (:func:`remove_leftovers`).

    Args:
        parent: Parent folder. If None, the system's folder for temporary files is used.
        name: Beginning of the folder's name.

    Yields:
        Folder that only its owner can read.
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
    """Delete temporary files and folders that killed processes left in a folder.

    An entry is deleted only if it belongs to the current user, if the process in its name (process id and start time)
    has ended, and if it is not locked. The lock protects entries of processes in other containers, whose process ids
    are invisible here.

    Args:
        folder: Folder to clean. A missing or unreadable folder is skipped.
        depth: Number of levels of subfolders to clean too.

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
    """Call :func:`remove_leftovers` the first time that this process writes to a folder."""
    folder = folder.absolute()
    if folder not in _CLEANED:
        _CLEANED.add(folder)
        remove_leftovers(folder)


def _temporary_prefix(name: str) -> str:
    """Return the hidden prefix of a temporary name, with the id and the start time of this process."""
    first = name.encode()[:NAME_BYTES].decode(errors="ignore")
    return f".{first}.{os.getpid()}-{_start_time(os.getpid()) or 0}-"


def _start_time(process: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, or None if the process or ``/proc`` is missing."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return status.rpartition(")")[2].split()[19]  # Field 22 of proc(5). The name in brackets may contain spaces.


def _process_runs(process: int, start: str) -> bool:
    """Return whether the process with this id and start time is running."""
    if Path("/proc/self/stat").is_file():
        return _start_time(process) == start
    if os.name != "posix":
        return True  # On Windows, `os.kill` would end the process.
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _remove_unlocked(path: Path) -> bool:
    """Delete an unlocked file or folder of the current user, and return whether it was deleted."""
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
    """Add the path of a file to errors raised while writing it, such as those of a full disk.

    Args:
        path: File or folder that the block writes.

    Yields:
        None.

    Raises:
        OSError: If the block raises an OSError, a SafetensorError or a write error of ``torch.save``.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    except (SafetensorError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "inline_container" not in str(error):  # Only `torch.save` raises these.
            raise
        raise OSError(f"{path} cannot be written (is the disk full?): {error}") from error


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder next to ``folder``, and rename it to ``folder`` if the block succeeds.

    If the block raises, the temporary folder is deleted. An existing folder is replaced, and restored if the rename
    fails. Temporary folders of killed processes are deleted first (:func:`remove_leftovers`).

    Args:
        folder: Folder to write.

    Yields:
        Temporary folder.
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
    """Flush the content of a file, or the names in a folder, to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def claim_folder(folder: Path) -> Path:
    """Create a new folder. If the name is taken, the first free suffix ``_2``, ``_3``, ... is appended.

    Args:
        folder: Preferred path.

    Returns:
        Path of the folder that was created.
    """
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
        handle: File descriptor.

    Returns:
        Whether the lock was acquired. False if another descriptor holds the lock, or if the operating system or the
        file system does not support locks. An unlocked file is therefore never mistaken for an unused one.
    """
    try:
        import fcntl  # Not available on Windows.

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


class FolderInUseError(UserError):
    """Error raised when another process is writing to a folder."""


@contextmanager
def sole_use(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Lock a folder against other processes until the end of the block or of this process.

    Args:
        folder: Folder to lock, created if missing.
        wait: Whether to wait until the lock is free. By default, a locked folder raises an error.

    Yields:
        None.

    Raises:
        FolderInUseError: If another process has locked the folder and ``wait`` is False.
    """
    import fcntl  # Not available on Windows.

    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            message = f"{folder}: another command is writing to this folder; choose another folder"
            raise FolderInUseError(message) from error
        yield
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """Check that a folder can be written, before starting the work whose result is stored in it.

    Args:
        folder: Folder to check, created if missing.

    Raises:
        ValueError: If the folder cannot be created or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"x")
    except OSError as error:
        raise UserError(
            f"{folder} cannot be written ({error}); set paths.cache, or GRAPHRERANK_CACHE, to a writable folder"
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8.

    Args:
        path: File to write.
        text: Content of the file.
    """
    write_chunks(path, [text.encode()])


def write_bytes(path: Path, content: bytes) -> None:
    """Write a binary file atomically.

    Args:
        path: File to write.
        content: Content of the file.
    """
    write_chunks(path, [content])


def write_chunks(path: Path, chunks: Iterable[bytes | memoryview]) -> str:
    """Write a file atomically from chunks of bytes, and return its hash.

    Args:
        path: File to write.
        chunks: Pieces of the content, in order.

    Returns:
        SHA-256 of the content, in hexadecimal.
    """
    sha = hashlib.sha256()
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        for chunk in chunks:
            sha.update(chunk)
            file.write(chunk)
        file.flush()
    return sha.hexdigest()


def open_plain(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file or a folder in a place where other users may create files.

    Args:
        path: File or folder to open.
        flags: Flags for ``os.open``. ``os.O_DIRECTORY`` opens a folder.

    Returns:
        File descriptor, which the caller must close.

    Raises:
        ValueError: If the path is a symbolic link or another kind of file, or if it is opened for writing and has
            several hard links. Links could redirect the write to another file of the user.
    """
    try:
        handle = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if path.is_symlink():
            raise UserError(
                f"{path} must not be a symbolic link, because it may lead to another of your files"
            ) from error
        raise
    is_expected_kind = stat.S_ISDIR if flags & getattr(os, "O_DIRECTORY", 0) else stat.S_ISREG
    status = os.fstat(handle)
    if not is_expected_kind(status.st_mode):
        os.close(handle)
        raise UserError(f"{path} must be a {'folder' if is_expected_kind is stat.S_ISDIR else 'regular file'}")
    if flags & (os.O_WRONLY | os.O_RDWR) and status.st_nlink > 1:
        os.close(handle)
        raise UserError(
            f"{path} must have a single hard link to be written to, got {status.st_nlink}, because another link may "
            "be one of your files; copy the folder without links, and use the copy"
        )
    return handle


def append_bytes(path: Path, size: int, content: bytes | memoryview, *, sync: bool = True) -> None:
    """Write bytes after the first ``size`` bytes of a file (:func:`open_plain`).

    Bytes beyond ``size`` are left over from an interrupted write and are overwritten. If the write fails, the file is
    truncated to ``size`` bytes again.

    Args:
        path: Existing file.
        size: Number of valid bytes at the start of the file.
        content: Bytes to append.
        sync: Whether to flush the bytes to the disk. Without it, they survive a crash of the process but not of the
            machine.

    Raises:
        OSError: If the bytes cannot be written. The message names the file.
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
    """Create an empty file that only its owner can read.

    Args:
        path: File to create.

    Raises:
        FileExistsError: If the file exists.
    """
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def blank_lines(path: Path, is_blanked: Callable[[bytes], bool]) -> int:
    """Overwrite selected lines of a file with spaces, while other processes may append to it.

    Args:
        path: Existing file.
        is_blanked: Function that receives a line with its line end, and returns whether to overwrite it.

    Returns:
        Number of lines that were overwritten.
    """
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
    """Write a JSON file atomically.

    Args:
        path: File to write.
        content: JSON content. NaN and infinite numbers, which JSON does not have, become null.
    """
    write_text(path, json.dumps(without_nan(content), indent=2, allow_nan=False) + "\n")


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON object to a cache file atomically, with a checksum as its last entry.

    Args:
        path: File to write.
        content: Entries of the object.
    """
    crc = zlib.crc32(json.dumps(content).encode())
    write_text(path, json.dumps({**content, CHECKSUM: crc}, ensure_ascii=False) + "\n")


def read_checked_json(path: Path) -> dict[str, Any]:
    """Read a file written by :func:`write_checked_json`, and compare its checksum.

    Args:
        path: File to read. Files of older versions have no checksum.

    Returns:
        Entries of the object, without the checksum.

    Raises:
        ValueError: If the file is damaged.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        written = content.pop(CHECKSUM, None)
    except (ValueError, AttributeError, TypeError) as error:
        raise UserError(f"{path}: damaged cache ({error}); delete this file and run again") from error
    if written not in (None, zlib.crc32(json.dumps(content).encode())):
        raise UserError(f"{path}: damaged cache (wrong checksum); delete this file and run again")
    return content


def write_json_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a JSON Lines file atomically, one object per line.

    Args:
        path: File to write.
        lines: Objects to write. NaN and infinite numbers become null.
    """
    write_text(path, "".join(f"{json.dumps(without_nan(line), ensure_ascii=False)}\n" for line in lines))


def save_figure(path: Path, figure: Any) -> None:
    """Write a matplotlib figure as a PNG file, atomically.

    Args:
        path: File to write.
        figure: ``matplotlib.figure.Figure`` to write.
    """
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=120)


def without_nan(content: Any) -> Any:
    """Return a copy of nested content in which NaN and infinite numbers are None.

    Args:
        content: Mappings, lists and plain values, nested at any depth.

    Returns:
        Content that JSON can represent. Tuples become lists.
    """
    if isinstance(content, Mapping):
        return {key: without_nan(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [without_nan(value) for value in content]
    return None if isinstance(content, float) and not math.isfinite(content) else content


def hash_model(model: str, revision: str | None, kinds: Collection[str]) -> str:
    """Return an identifier of a model's content.

    Args:
        model: Local folder, or model id on the Hugging Face hub.
        revision: Commit of a hub model. If None, the latest.
        kinds: Suffixes of the files to hash in a local folder, such as ``.safetensors``.

    Returns:
        SHA-256 of the files for a local folder, otherwise ``model@revision``.
    """
    folder = Path(model)
    if not folder.is_dir():
        return f"{model}@{revision}"
    return hash_files(sorted(file for file in folder.rglob("*") if file.suffix in kinds))


def hash_json(content: Any) -> str:
    """Return a short hash of JSON content.

    Args:
        content: JSON content. The order of keys does not matter.

    Returns:
        12 hexadecimal digits.
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def hash_files(files: Sequence[Path]) -> str:
    """Return the SHA-256 of the names and contents of files.

    Files of a few megabytes and more, such as the weights of a model, are read only once by a process as long as they
    do not change.

    Args:
        files: Files to hash, in order. For a single file, only the content is hashed.

    Returns:
        SHA-256 in hexadecimal.
    """
    versions = tuple(map(_file_version, files))
    if versions in _HASHES:
        return _HASHES[versions]
    sha = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            sha.update(file.name.encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                sha.update(block)
    digest = sha.hexdigest()
    size = sum(version.size for version in versions)
    last_change = max((version.changed for version in versions), default=0)
    if size >= REMEMBERED_BYTES and time.time_ns() - last_change > SETTLED_NANOSECONDS:
        _HASHES[versions] = digest
    return digest


class _FileVersion(NamedTuple):
    """Identity of a file and of its content, as far as the file system knows it."""

    name: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


def _file_version(file: Path) -> _FileVersion:
    state = file.stat()
    return _FileVersion(file.name, state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
