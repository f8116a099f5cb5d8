"""Files that are either whole or not there: written under a temporary name, then renamed."""

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import safetensors
from safetensors.torch import load_file, save_file
from torch import Tensor


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; rename it to ``path`` when the block ends well, else delete it.

    Example:
        >>> folder = Path(tempfile.mkdtemp())
        >>> with atomic_path(folder / "a.txt") as temporary:
        ...     _ = temporary.write_text("whole")
        >>> [file.name for file in folder.iterdir()]
        ['a.txt']
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors as one safetensors file, atomically."""
    with atomic_path(path) as temporary:
        save_file({k: v.contiguous() for k, v in tensors.items()}, temporary, dict(metadata or {}))


def load_tensors(path: Path, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Read named tensors that :func:`save_tensors` wrote.

    Raises:
        ValueError: If the file is damaged or holds other tensors; the message says to delete it.
    """
    try:
        tensors = load_file(path)
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path}: damaged cache ({error}); delete this file and run again") from error
    if set(tensors) != set(names):
        raise ValueError(f"{path}: needed the tensors {sorted(names)}, found {sorted(tensors)}; delete this file")
    return tensors


def hash_files(files: Sequence[Path]) -> str:
    """SHA-256 over names and contents; of the bare content for a single file."""
    sha = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            sha.update(file.name.encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                sha.update(block)
    return sha.hexdigest()
