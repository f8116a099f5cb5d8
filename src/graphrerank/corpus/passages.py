"""Passages of a corpus by number: their ids, texts, words, metadata and vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.corpus.inverted_index import WordIndex
from graphrerank.corpus.metadata import Metadata
from graphrerank.corpus.packed_strings import chosen

__getattr__ = moved_names(__name__)


@dataclass(frozen=True)
class Passages:
    """``N`` passages, in memory or mapped from a corpus folder.

    Attributes:
        ids: Unique ids.
        texts: Texts, each with its title at the start.
        title_lengths: Number of characters ``[N]`` int32 of the title at the start of each text. None if unknown.
        language: Language in which words of texts and queries are matched, a name of
            :mod:`graphrerank.text.languages`.
        words: Inverted index of the words. None if the texts have to be tokenized first.
        removed: Mask ``[N]`` of removed passages, which keep their numbers, have no edges and are never ranked. None if
            none was removed.
        metadata: Metadata of the passages. None if no passage has any.
    """

    ids: Sequence[str]
    texts: Sequence[str]
    title_lengths: Tensor | None = None
    language: str = "english"
    words: WordIndex | None = None
    removed: Tensor | None = None
    metadata: Metadata | None = None

    def select(self, nodes: npt.NDArray[np.int64], **statistics: bool) -> "Passages":
        """Return some passages. Hidden passages do not influence words or metadata of the result.

        Args:
            nodes: Numbers of the passages to keep, ascending. None of them may be removed.
            **statistics: ``own_statistics`` of :meth:`WordIndex.select`.
        """
        return replace(
            self,
            ids=chosen(self.ids, nodes),
            texts=chosen(self.texts, nodes),
            title_lengths=None if self.title_lengths is None else self.title_lengths[nodes],
            words=None if self.words is None else self.words.select(nodes, **statistics),
            removed=None,
            metadata=None if self.metadata is None else self.metadata.select(nodes),
        )

    def compacted(self) -> "Passages":
        """Return the same passages with indexes of these alone, so that look-ups skip the passages left out before."""
        words, metadata = self.words, self.metadata
        return replace(
            self,
            words=None if words is None else replace(words, tokens=words.tokens.compacted()),
            metadata=None if metadata is None else metadata.compacted(),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: str | torch.device) -> "Passages":
        """Return the same passages with the mask of removed ones on a device."""
        return self if self.removed is None else replace(self, removed=self.removed.to(device))

    def title(self, number: int) -> str:
        """Return the title of a passage, or an empty string if it is unknown."""
        return "" if self.title_lengths is None else self.texts[number][: int(self.title_lengths[number])]

    def mask_removed(self, scores: Tensor) -> Tensor:
        """Set the scores ``[B, N]`` of removed passages to -inf, so that they are not ranked."""
        return scores if self.removed is None else scores.masked_fill(self.removed.to(scores.device), -torch.inf)


@dataclass(frozen=True)
class NodeVectors:
    """One vector per node.

    A node without a vector has zeros. It is found by its words and its neighbours only.

    Attributes:
        embedding: Vectors ``[N, d]``, float32 in memory and perhaps float16 on disk.
        index: Path of a FAISS index over the first of the vectors. Its suffix is its kind, ``.ivf`` or ``.hnsw``. None
            if there is none.
        content: Hash of ids, texts and vectors. None if it was not computed.
    """

    embedding: Tensor
    index: Path | None = None
    content: str | None = None

    def select(self, nodes: Tensor) -> "NodeVectors":
        """Return the vectors of some nodes, in memory."""
        return NodeVectors(self.embedding[nodes])

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the same vectors on a device."""
        return replace(self, embedding=self.embedding.to(device))
