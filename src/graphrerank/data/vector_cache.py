"""Vectors on disk, keyed by the text and the encoder: nothing is encoded twice, and an interrupted run goes on."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.data.encoder import Encoder, check_vectors
from graphrerank.files import hash_text, load_tensors, save_tensors

SHARD_TEXTS = 4096  # texts encoded between two writes: at most this much work is lost on a stop


class VectorCache:
    """An encoder that remembers.

    Vectors lie in ``<folder>/<encoder fingerprint>/*.safetensors``, each file holding the SHA-256 of its texts and
    their vectors. New texts go to new files, so adding documents to a corpus encodes only those.

    Args:
        encoder: The encoder to ask for new texts.
        folder: Where the files lie.
    """

    def __init__(self, encoder: Encoder, folder: str | Path) -> None:
        self.encoder = encoder
        self.folder = Path(folder)
        self.name = encoder.name
        self._shards: dict[Path, Tensor] = {}  # vectors of the files read so far, mapped from disk
        self._places: dict[bytes, tuple[Path, int]] = {}  # a text's file and row

    @property
    def fingerprint(self) -> str:
        """The wrapped encoder's fingerprint."""
        return self.encoder.fingerprint

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, d]`` float32 unit vectors, from disk where they are there.

        Raises:
            ValueError: If a cache file is damaged, naming it.
        """
        shelf = self.folder / self.fingerprint[:32]
        self._read_new(shelf)
        keys = [hash_text(text) for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._places}
        order = sorted(missing, key=lambda key: len(missing[key]))  # like lengths together: less padding
        for start in range(0, len(order), SHARD_TEXTS):
            part = order[start : start + SHARD_TEXTS]
            vectors = check_vectors(self.encoder.encode([missing[key] for key in part]), len(part), self.name)
            table = torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8).reshape(-1, 32)
            file = shelf / f"{hashlib.sha256(b''.join(part)).hexdigest()[:32]}.safetensors"
            save_tensors(file, {"keys": table, "vectors": vectors})
            self._remember(file, part, vectors)
        return self._gather([self._places[key] for key in keys])

    def _read_new(self, shelf: Path) -> None:
        """Read the files that other processes, or earlier runs, left."""
        for file in sorted(shelf.glob("*.safetensors")):
            if file not in self._shards:
                shard = load_tensors(file, ("keys", "vectors"))
                table = shard["keys"].numpy().tobytes()
                keys = [table[start : start + 32] for start in range(0, len(table), 32)]
                vectors = check_vectors(shard["vectors"], len(keys), f"{file} (delete this file and run again)")
                self._remember(file, keys, vectors)

    def _remember(self, file: Path, keys: Sequence[bytes], vectors: Tensor) -> None:
        self._shards[file] = vectors
        self._places.update((key, (file, row)) for row, key in enumerate(keys))

    def _gather(self, places: Sequence[tuple[Path, int]]) -> Tensor:
        """Put vectors together, file by file."""
        rows_of: dict[Path, tuple[list[int], list[int]]] = {}
        for target, (file, row) in enumerate(places):
            targets, rows = rows_of.setdefault(file, ([], []))
            targets.append(target)
            rows.append(row)
        width = self._shards[places[0][0]].shape[1] if places else 0
        found = torch.empty(len(places), width)
        for file, (targets, rows) in rows_of.items():
            found[targets] = self._shards[file][rows]
        return found
