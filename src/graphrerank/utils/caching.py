"""Caches on disk, keyed by the hash of their inputs.

:func:`fill` computes the items that a store lacks and writes them shard by shard. Each shard is written atomically, so
an interrupted run loses at most one shard, and several processes can fill one store at the same time. There are two
file formats: :class:`BlobStore` (SQLite) and :class:`TensorStore` (safetensors).
"""

import hashlib
import sqlite3
import time
import warnings
import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from graphrerank.utils.checks import UserError
from graphrerank.utils.files import check_writable
from graphrerank.utils.progress import Clock, advance_to, parts_done, progress_bar
from graphrerank.utils.tensor_files import load_tensors, save_tensors

KEY_BYTES = 32  # size of a SHA-256 hash
LOOKED_UP = 500  # Number of keys per SQL statement. Old versions of SQLite allow at most 999.
WAIT_S = 60.0  # Seconds to wait while another process writes.

Item = TypeVar("Item")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the cache folder for vectors and candidate lists.

    The result is the default of ``paths.cache`` in ``conf/paths/default.yaml``.

    Args:
        environment: Environment variables. ``GRAPHRERANK_CACHE`` overrides the default ``$HOME/.cache/graphrerank``.

    Returns:
        Path of the folder. The folder may not exist yet.
    """
    folder = environment.get("GRAPHRERANK_CACHE")
    return Path(folder) if folder else Path(environment.get("HOME", ".")) / ".cache" / "graphrerank"


def fill(
    store: "BlobStore | TensorStore",
    keys: Sequence[bytes],
    items: Sequence[Item],
    compute: Callable[[list[Item]], Any],
    *,
    shard_size: int,
    length: Callable[[Item], int] | None = None,
    label: str | None = None,
    clock: Clock = time.monotonic,
) -> None:
    """Compute the items that a store lacks, and write them shard by shard.

    Args:
        store: Store to fill.
        keys: ``n`` keys, one per item. Items with the same key must be equal, and only one of them is computed.
        items: ``n`` inputs of ``compute``.
        compute: Function that returns the values of a list of items, in the form that ``store.add`` accepts.
        shard_size: Maximum number of items per call of ``compute``. An interrupted run loses at most this many.
        length: Function that returns the length of an item. Missing items are sorted by length, because batches of
            similar lengths need less padding. If None, the order of ``items`` is used.
        label: Title of the progress bar (:func:`~graphrerank.utils.progress.progress_bar`). If None, no progress is
            shown.
        clock: Function that returns the current time in seconds, for the progress bar.

    Raises:
        ValueError: If a file of the store is damaged, or if the store cannot be written.
    """
    item_of = dict(zip(keys, items, strict=True))
    stored = store.stored(list(item_of))
    missing = [key for key in item_of if key not in stored]
    if missing and store.folder is not None:
        check_writable(store.folder)  # Fail before the values are computed, not after.
    if length is not None:
        missing.sort(key=lambda key: length(item_of[key]))
    with (
        nullcontext() if label is None or not missing else progress_bar(label, len(missing), announce=True, clock=clock)
    ):
        before = parts_done()
        for start in range(0, len(missing), shard_size):
            shard = missing[start : start + shard_size]
            store.add(shard, compute([item_of[key] for key in shard]))
            advance_to(before + start + len(shard))


class BlobStore:
    """Store of byte strings in one table of an SQLite file.

    Each write is one transaction. A damaged row is deleted with a warning, so that its value is computed again.

    Args:
        path: SQLite file, created if missing. If None, the store is in memory only.
        table: Name of the table.

    Attributes:
        path: SQLite file, or None.
        folder: Folder of the file, or None.
        table: Name of the table.
        contents: Byte strings read or added so far, by key.
    """

    def __init__(self, path: Path | None, table: str) -> None:
        self.path = path
        self.folder = None if path is None else path.parent
        self.table = table
        self.contents: dict[bytes, bytes] = {}

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Read the contents of the given keys from the file.

        Args:
            keys: Keys to look up. Keys that are not in the file are ignored.

        Returns:
            All contents read or added so far, by key.

        Raises:
            ValueError: If the file is damaged, locked for too long, or cannot be read.
        """
        if self.path is not None and keys:
            with self._open(self.path) as file, file:
                for start in range(0, len(keys), LOOKED_UP):
                    batch = keys[start : start + LOOKED_UP]
                    marks = ",".join("?" * len(batch))
                    query = f"SELECT key, content, checksum FROM {self.table} WHERE key IN ({marks})"
                    for key, content, checksum in file.execute(query, batch).fetchall():
                        if checksum in (None, zlib.crc32(key + content)):  # Rows of older versions have no checksum.
                            self.contents[key] = content
                        else:
                            warn_damaged(f"{self.path}: damaged row")
                            file.execute(f"DELETE FROM {self.table} WHERE key = ?", (key,))
        return self.contents

    def add(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write new contents in one transaction.

        Args:
            keys: ``n`` keys. A key that is already in the file keeps its content.
            values: ``n`` byte strings. None values are not stored.

        Raises:
            ValueError: If the file is damaged, locked for too long, or cannot be written.
        """
        new = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        if self.path is not None:
            with self._open(self.path) as file, file:  # The second context manager is the transaction.
                rows = ((key, value, zlib.crc32(key + value)) for key, value in new.items())
                file.executemany(f"INSERT OR IGNORE INTO {self.table} VALUES (?, ?, ?)", rows)
        self.contents.update(new)

    def rows(self, keys: Sequence[bytes], width: int, dtype: np.dtype[Any]) -> Tensor:
        """Return contents as vectors.

        Args:
            keys: ``n`` keys that were read by :meth:`stored` or written by :meth:`add`.
            width: Number of components per vector.
            dtype: Data type of the stored components.

        Returns:
            Vectors ``[n, width]`` float32.

        Raises:
            ValueError: If any content read so far has another size.
        """
        needed = width * dtype.itemsize
        if odd := {len(content) for content in self.contents.values()} - {needed}:
            raise UserError(
                f"{self.path}: damaged cache (expected rows of {needed} bytes, got one of {min(odd)}); "
                "delete this file and run again"
            )
        joined = np.frombuffer(b"".join(self.contents[key] for key in keys), dtype=dtype)
        return torch.from_numpy(joined.reshape(len(keys), width).astype(np.float32))

    @contextmanager
    def _open(self, path: Path) -> Iterator[sqlite3.Connection]:
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = "(key BLOB PRIMARY KEY, content BLOB, checksum INTEGER) WITHOUT ROWID"
        try:
            with closing(sqlite3.connect(path, timeout=WAIT_S)) as file:
                file.execute(f"CREATE TABLE IF NOT EXISTS {self.table} {columns}")
                if file.execute(f"SELECT count(*) FROM pragma_table_info('{self.table}')").fetchone() == (2,):
                    file.execute(
                        f"ALTER TABLE {self.table} ADD COLUMN checksum INTEGER"
                    )  # The file is of an older version.
                yield file
        except sqlite3.OperationalError as error:  # The file is locked, or the disk is full.
            raise UserError(f"{path}: cannot be read or written: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: damaged cache ({error}); delete this file and run again") from error


class TensorStore:
    """Store of vectors in a folder of safetensors files.

    Each file ``<folder>/*.safetensors`` is one shard with the tensors ``keys`` and ``vectors``. A damaged file is
    deleted with a warning, so that its vectors are computed again.

    Args:
        folder: Folder of the shards, created by the first write.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tables: list[Tensor] = []  # Vectors of each shard read or written so far, mapped from disk.
        self._files: set[Path] = set()
        self._positions: dict[bytes, tuple[int, int]] = {}  # Index of the table, and row in the table.

    def stored(self, keys: Sequence[bytes]) -> Container[bytes]:
        """Map the shards that were written since the last call.

        Args:
            keys: Ignored. All shards of the folder are mapped.

        Returns:
            Keys of all vectors in the store.
        """
        for file in sorted(set(self.folder.glob("*.safetensors")) - self._files):
            if (shard := read_cached(file, ("keys", "vectors"))) is None:
                file.unlink(missing_ok=True)
            else:
                self._remember(file, [row.tobytes() for row in shard["keys"].numpy()], shard["vectors"])
        return self._positions

    def add(self, keys: Sequence[bytes], values: Tensor) -> None:
        """Write a shard to a new file.

        Args:
            keys: ``n`` keys of 32 bytes.
            values: Vectors ``[n, d]``.
        """
        joined = b"".join(keys)
        table = torch.frombuffer(bytearray(joined), dtype=torch.uint8).reshape(-1, KEY_BYTES)
        file = self.folder / f"{short_hash(joined)}.safetensors"
        save_tensors(file, {"keys": table, "vectors": values})
        self._remember(file, keys, values)

    def rows(self, keys: Sequence[bytes]) -> Tensor:
        """Return the vectors of stored keys.

        Args:
            keys: ``n`` keys in the store, at least one.

        Returns:
            Vectors ``[n, d]`` float32.

        Raises:
            KeyError: If a key is not in the store.
        """
        table_of, row = torch.tensor([self._positions[key] for key in keys]).unbind(1)
        vectors = torch.empty(len(keys), self._tables[int(table_of[0])].shape[1])
        counts = torch.bincount(table_of, minlength=len(self._tables)).tolist()
        for table, selected in zip(self._tables, torch.split(table_of.argsort(stable=True), counts), strict=True):
            vectors[selected] = table[row[selected]]
        return vectors

    def _remember(self, file: Path, keys: Sequence[bytes], table: Tensor) -> None:
        self._files.add(file)
        self._positions.update((key, (len(self._tables), row)) for row, key in enumerate(keys))
        self._tables.append(table)


def read_cached(path: Path, names: tuple[str, ...] | None = None) -> dict[str, Tensor] | None:
    """Read the tensors of a cache file.

    Args:
        path: File written by :func:`~graphrerank.utils.tensor_files.save_tensors`.
        names: Expected names of the tensors. If None, all names are accepted.

    Returns:
        Tensors by name. None if the file is missing, or if it is damaged, in which case a warning is issued.
    """
    if not path.is_file():
        return None
    try:
        return load_tensors(path, names)
    except UserError as error:
        warn_damaged(str(error).rpartition(";")[0])
        return None


def cached_tensors(
    path: Path, names: tuple[str, ...], compute: Callable[[], Mapping[str, Tensor]]
) -> dict[str, Tensor]:
    """Read the tensors of a cache file, and compute and write them first if the file is missing or damaged.

    Args:
        path: Cache file.
        names: Names of the tensors.
        compute: Function that returns the tensors by name.

    Returns:
        Tensors by name, mapped from the file.

    Raises:
        ValueError: If the folder cannot be written, or if ``compute`` returns tensors with other names.
    """
    tensors = read_cached(path, names)
    if tensors is None:
        check_writable(path.parent)
        save_tensors(path, compute())
        tensors = load_tensors(path, names)
    return tensors


def warn_damaged(damage: str) -> None:
    """Warn that an entry of a cache is damaged and is computed again.

    Args:
        damage: Name of the file and description of the damage.
    """
    warnings.warn(f"{damage}; the entry is computed again", stacklevel=3)


def hash_text(text: str) -> bytes:
    """Return the SHA-256 digest of a text, the key of the text in a cache.

    Args:
        text: Text to hash. Lone surrogates are allowed.

    Returns:
        32 bytes.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def hash_texts(texts: Sequence[str]) -> bytes:
    """Return the SHA-256 digest of a sequence of texts.

    Args:
        texts: Texts to hash. The digest depends on the boundaries between them.

    Returns:
        32 bytes.
    """
    sha = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        sha.update(len(raw).to_bytes(8, "little") + raw)
    return sha.digest()


def short_hash(content: bytes | str) -> str:
    """Return the first half of a SHA-256 digest in hexadecimal, short enough for a file name.

    Args:
        content: Bytes or text to hash.

    Returns:
        32 hexadecimal digits.
    """
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:32]
