"""Vectors of many texts, kept on disk in parts."""

import hashlib
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from graphrerank.indexes.stages import Made, Stages

FORMAT = 1  # of the files: a change of what a stage holds must change it
PART_TEXTS = 4096  # encoded between two writes: at most this much work is lost on a stop


@runtime_checkable
class IndexEncoder(Protocol):
    """Anything that turns texts into vectors; one that remembers them makes adding documents cheap."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors would."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors."""


def encode_in_parts(stages: Stages, encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    """Encode texts in parts, each of them a stage named by its texts.

    Args:
        stages: Where the parts lie.
        encoder: Whom to ask for what is not there.
        texts: ``n`` texts.

    Returns:
        ``[n, d]`` float32; ``[0, 0]`` without texts.

    Raises:
        ValueError: If the encoder gives what does not fit, or a file is damaged.
    """
    parts = [texts[start : start + PART_TEXTS] for start in range(0, len(texts), PART_TEXTS)]
    return torch.cat([_part(stages, encoder, part) for part in parts]) if parts else torch.zeros(0, 0)


def digest(texts: Sequence[str]) -> str:
    """SHA-256 of texts and their bounds."""
    sha = hashlib.sha256()
    for text in texts:
        raw = text.encode("utf-8", "surrogatepass")
        sha.update(len(raw).to_bytes(8, "little") + raw)
    return sha.hexdigest()


def _part(stages: Stages, encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    def make() -> Made:
        vectors = encoder.encode(texts).float().cpu()
        if vectors.dim() != 2 or len(vectors) != len(texts) or not torch.isfinite(vectors).all():
            raise ValueError(
                f"`encoder` must give finite [{len(texts)}, d] vectors, got a tensor of shape {list(vectors.shape)}"
            )
        return {"vectors": vectors}, {}

    key = stages.key("vectors", FORMAT, digest(texts), encoder.fingerprint)
    return stages.get(key, ("vectors",), make)[0]["vectors"]
