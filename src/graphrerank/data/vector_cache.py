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
        keys = [hash_text(text) for text in texts]
        known = self._read(shelf)
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        order = sorted(missing, key=lambda key: len(missing[key]))  # like lengths together: less padding
        for start in range(0, len(order), SHARD_TEXTS):
            part = order[start : start + SHARD_TEXTS]
            vectors = check_vectors(self.encoder.encode([missing[key] for key in part]), len(part), self.name)
            table = torch.frombuffer(bytearray(b"".join(part)), dtype=torch.uint8).reshape(-1, 32)
            name = hashlib.sha256(b"".join(part)).hexdigest()[:32]
            save_tensors(shelf / f"{name}.safetensors", {"keys": table, "vectors": vectors})
            known.update(zip(part, vectors, strict=True))
        return torch.stack([known[key] for key in keys]) if keys else torch.zeros(0, 0)

    def _read(self, shelf: Path) -> dict[bytes, Tensor]:
        known: dict[bytes, Tensor] = {}
        for file in sorted(shelf.glob("*.safetensors")):
            shard = load_tensors(file, ("keys", "vectors"))
            table = shard["keys"].numpy().tobytes()
            vectors = check_vectors(shard["vectors"], len(table) // 32, f"{file} (delete this file and run again)")
            known.update((table[32 * i : 32 * i + 32], vector) for i, vector in enumerate(vectors))
        return known
