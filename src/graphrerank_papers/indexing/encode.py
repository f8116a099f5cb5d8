"""Vectors of an index's texts, encoded in blocks that are stored on disk."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank_papers.indexing.stages import Stages

FORMAT = 1  # increment when the content of a stage changes
BLOCK_TEXTS = 4096  # encoded between two writes: an interruption loses at most this much work


@runtime_checkable
class IndexEncoder(Protocol):
    """Anything that turns texts into vectors; one that caches them makes adding documents cheap."""

    @property
    def fingerprint(self) -> str:
        """A string that changes whenever the vectors would."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors."""


def encode_texts(encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    """Encode texts as ``[n, d]`` float32 on the CPU; refuse vectors that are not finite or not one per text."""
    vectors = encoder.encode(texts).float().cpu()
    if vectors.dim() != 2 or len(vectors) != len(texts) or not torch.isfinite(vectors).all():
        raise ValueError(
            f"`encoder` must return finite [{len(texts)}, d] vectors, got a tensor of shape {list(vectors.shape)}"
        )
    return vectors


def encode_in_blocks(stages: Stages, encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    """Encode texts as ``[n, d]`` float32 (``[0, 0]`` without texts), in blocks stored under a hash of their texts."""
    blocks = [texts[start : start + BLOCK_TEXTS] for start in range(0, len(texts), BLOCK_TEXTS)]
    return torch.cat([_encode_block(stages, encoder, block) for block in blocks]) if blocks else torch.zeros(0, 0)


def _encode_block(stages: Stages, encoder: IndexEncoder, texts: Sequence[str]) -> Tensor:
    key = stages.key("vectors", FORMAT, hash_texts(texts).hex(), encoder.fingerprint)
    arrays, _ = stages.get(key, ("vectors",), lambda: ({"vectors": encode_texts(encoder, texts)}, {}))
    return arrays["vectors"]
