"""Results on disk by the hash of their inputs: the loop of every cache, and its two file formats.

:func:`fill` computes the items that a store lacks. A store writes each shard atomically, so that a stopped run loses at
most one shard and several processes may fill one store at once.
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
from graphrerank.utils.files import check_writable, load_tensors, save_tensors
from graphrerank.utils.progress import Clock, advance_to, parts_done, progress_bar

KEY_BYTES = 32
LOOKED_UP = 500  # keys in one statement; SQLite's oldest limit is 999
WAIT_S = 60.0  # for another process's write

Item = TypeVar("Item")


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder of vectors and candidate lists, as ``conf/paths/default.yaml`` names it."""
    named = environment.get("GRAPHRERANK_CACHE")
    return Path(named) if named else Path(environment.get("HOME", ".")) / ".cache" / "graphrerank"


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
    """Compute the items that a store does not hold, and write them shard by shard.

    ``keys`` and ``items`` are ``n`` each; a repeated key stands for the same item. ``compute`` returns the values of
    some items as the store's ``add`` takes them, ``shard_size`` at once: at most this much work is lost on a stop.
    Missing items are sorted by ``length``, as batches of like lengths need less padding. ``label`` is the title of a
    progress bar (:func:`~graphrerank.utils.progress.progress_bar`), None for none, and the ``clock`` tells its time. A
    ValueError if a file is damaged, naming it, or the store cannot be written.
    """
    item_of = dict(zip(keys, items, strict=True))
    known = store.stored(list(item_of))
    missing = [key for key in item_of if key not in known]
    if missing and store.folder is not None:
        check_writable(store.folder)  # before values are computed, not after
    if length is not None:
        missing.sort(key=lambda key: length(item_of[key]))
    with nullcontext() if label is None or not missing else progress_bar(label, len(missing), clock=clock):
        before = parts_done()
        for start in range(0, len(missing), shard_size):
            shard = missing[start : start + shard_size]
            store.add(shard, compute([item_of[key] for key in shard]))
            advance_to(before + start + len(shard))


class BlobStore:
    """Bytes in one SQLite file, in memory alone if ``path`` is None; each write is a transaction.

    ``contents`` are those read or added so far, by key. A damaged row is deleted with a warning; a damaged file is a
    ValueError that names it.
    """

    def __init__(self, path: Path | None, table: str) -> None:
        self.path = path
        self.folder = None if path is None else path.parent
        self.table = table
        self.contents: dict[bytes, bytes] = {}

    def stored(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Read the contents of those keys that are in the file."""
        if self.path is not None and keys:
            with self._open(self.path) as file, file:
                for start in range(0, len(keys), LOOKED_UP):
                    part = keys[start : start + LOOKED_UP]
                    marks = ",".join("?" * len(part))
                    query = f"SELECT key, content, checksum FROM {self.table} WHERE key IN ({marks})"
                    for key, content, checksum in file.execute(query, part).fetchall():
                        if checksum in (None, zlib.crc32(key + content)):  # None: of an older version
                            self.contents[key] = content
                        else:
                            warn_damaged(f"{self.path}: a damaged row")
                            file.execute(f"DELETE FROM {self.table} WHERE key = ?", (key,))
        return self.contents

    def add(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Write ``n`` new contents in one transaction; None is not kept, and a key that is there keeps its content."""
        new = {key: value for key, value in zip(keys, values, strict=True) if value is not None}
        if self.path is not None:
            with self._open(self.path) as file, file:  # a transaction
                rows = ((key, value, zlib.crc32(key + value)) for key, value in new.items())
                file.executemany(f"INSERT OR IGNORE INTO {self.table} VALUES (?, ?, ?)", rows)
        self.contents.update(new)

    def rows(self, keys: Sequence[bytes], width: int, dtype: np.dtype[Any]) -> Tensor:
        """Read contents as vectors ``[n, width]`` float32 of ``n`` known keys; a ValueError for another size."""
        needed = width * dtype.itemsize
        if odd := {len(content) for content in self.contents.values()} - {needed}:
            raise UserError(
                f"{self.path}: damaged cache (needed rows of {needed} bytes, found one of {min(odd)}); "
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
                    file.execute(f"ALTER TABLE {self.table} ADD COLUMN checksum INTEGER")  # an older version's
                yield file
        except sqlite3.OperationalError as error:  # locked, or the disk is full
            raise UserError(f"{path}: cannot be read or written: {error}") from error
        except sqlite3.DatabaseError as error:
            raise UserError(f"{path}: damaged cache ({error}); delete this file and run again") from error


class TensorStore:
    """Vectors of texts in ``<folder>/*.safetensors``; each file holds one shard: ``keys`` and ``vectors``.

    A damaged file is deleted with a warning, so that its vectors are computed again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tables: list[Tensor] = []  # the vectors of each file read or written so far, mapped from disk
        self._files: set[Path] = set()
        self._places: dict[bytes, tuple[int, int]] = {}  # number of the table, and row in it

    def stored(self, keys: Sequence[bytes]) -> Container[bytes]:
        """Read the files that were not read yet; return all keys known."""
        for file in sorted(set(self.folder.glob("*.safetensors")) - self._files):
            if (shard := read_cached(file, ("keys", "vectors"))) is None:
                file.unlink(missing_ok=True)
            else:
                self._remember(file, [row.tobytes() for row in shard["keys"].numpy()], shard["vectors"])
        return self._places

    def add(self, keys: Sequence[bytes], values: Tensor) -> None:
        """Write a shard to a new file."""
        joined = b"".join(keys)
        table = torch.frombuffer(bytearray(joined), dtype=torch.uint8).reshape(-1, KEY_BYTES)
        file = self.folder / f"{short_hash(joined)}.safetensors"
        save_tensors(file, {"keys": table, "vectors": values})
        self._remember(file, keys, values)

    def rows(self, keys: Sequence[bytes]) -> Tensor:
        """Return the vectors ``[n, d]`` of known keys, one at least."""
        table_of, row = torch.tensor([self._places[key] for key in keys]).unbind(1)
        vectors = torch.empty(len(keys), self._tables[int(table_of[0])].shape[1])
        counts = torch.bincount(table_of, minlength=len(self._tables)).tolist()
        for table, chosen in zip(self._tables, torch.split(table_of.argsort(stable=True), counts), strict=True):
            vectors[chosen] = table[row[chosen]]
        return vectors

    def _remember(self, file: Path, keys: Sequence[bytes], table: Tensor) -> None:
        self._files.add(file)
        self._places.update((key, (len(self._tables), row)) for row, key in enumerate(keys))
        self._tables.append(table)


def read_cached(path: Path, names: tuple[str, ...] | None = None) -> dict[str, Tensor] | None:
    """Read the tensors of a cache file; None if there is none, or with a warning if it is damaged."""
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
    """Read the tensors of a cache file; compute and write them first if it is missing or damaged."""
    tensors = read_cached(path, names)
    if tensors is None:
        check_writable(path.parent)
        save_tensors(path, compute())
        tensors = load_tensors(path, names)
    return tensors


def warn_damaged(damage: str) -> None:
    """Warn that a part of a cache is damaged, which its reader computes again."""
    warnings.warn(f"{damage}; it is computed again", stacklevel=3)


def hash_text(text: str) -> bytes:
    """SHA-256 of a text, its key in a cache; a lone surrogate is no error."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def hash_texts(texts: Sequence[str]) -> bytes:
    """SHA-256 of texts and their lengths: it depends on the boundaries between them."""
    sha = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        sha.update(len(raw).to_bytes(8, "little") + raw)
    return sha.digest()


def short_hash(content: bytes | str) -> str:
    """Half of a SHA-256 in hexadecimal, a file's name for a fingerprint or for keys."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:32]
