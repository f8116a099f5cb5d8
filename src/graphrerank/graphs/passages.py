"""The passages of a corpus by number: their ids and texts, how their words are matched, and their vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.graphs.word_index import WordIndex


@dataclass(frozen=True)
class Passages:
    """``N`` passages, in memory or mapped from a corpus folder."""

    ids: Sequence[str]  # unique
    texts: Sequence[str]
    title_lengths: Tensor | None = None  # `[N]` int32, characters of its title at the start of a text; None if unknown
    language: str = "english"  # in which words of texts and queries are matched (`graphrerank.text.languages`)
    words: WordIndex | None = None  # None if the texts have to be read for them
    removed: Tensor | None = None  # `[N]` bool, passages that keep their numbers, without edges, never ranked

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: str | torch.device) -> "Passages":
        """Return the same passages for scores on a device."""
        return self if self.removed is None else replace(self, removed=self.removed.to(device))

    @property
    def whole(self) -> Sequence[str]:
        """The texts, for an index of all of them; a ValueError if some were removed, whose numbers are still there."""
        if self.removed is not None:
            raise UserError(
                f"`graph` must not have removed passages where all texts are indexed, got {int(self.removed.sum())}: "
                "compact the corpus folder"
            )
        return self.texts

    def title(self, number: int) -> str:
        """Return the title of a passage; empty if unknown."""
        return "" if self.title_lengths is None else self.texts[number][: int(self.title_lengths[number])]

    def mask_removed(self, scores: Tensor) -> Tensor:
        """Return scores ``[B, N]`` of all passages with -inf for removed ones, which are then not ranked."""
        return scores if self.removed is None else scores.masked_fill(self.removed.to(scores.device), -torch.inf)


@dataclass(frozen=True)
class NodeVectors:
    """One vector per node. A node without one has zeros, and is found by its words and its neighbours."""

    embedding: Tensor  # `[N, d]` float32, or float16 on disk
    index: Path | None = None  # of FAISS over the first of the vectors; its suffix is its kind, `.ivf` or `.hnsw`
    content: str | None = None  # hash of ids, texts and vectors, if known

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
