"""Passages of a corpus: ids, texts, words, metadata and vectors."""

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
    """Passages of a corpus, in memory or memory-mapped from a corpus folder.

    Attributes:
        ids: Unique ids of ``N`` passages.
        texts: Texts, each with its title at the start.
        title_lengths: Number of characters of the title at the start of each text, ``[N]`` int32. None if unknown.
        language: Language of the texts and queries, one of ``graphrerank.text.languages.LANGUAGES``.
        words: Inverted index of the words. None if the texts have to be tokenized first.
        removed: Mask of removed passages, ``[N]`` bool. They keep their indices, have no edges and are never ranked.
            None if none was removed.
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
        """Return the given passages. Other passages do not influence the words and the metadata of the result.

        Args:
            nodes: Indices of the passages, ascending. Removed passages are not allowed.
            **statistics: Option ``own_statistics`` of :meth:`WordIndex.select`.
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
        """Return the passages with indexes of these passages only, so that look-ups need not skip others."""
        words, metadata = self.words, self.metadata
        return replace(
            self,
            words=None if words is None else replace(words, tokens=words.tokens.compacted()),
            metadata=None if metadata is None else metadata.compacted(),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def to(self, device: str | torch.device) -> "Passages":
        """Return the passages with the mask of removed ones on another device.

        Args:
            device: Device of the mask.
        """
        return self if self.removed is None else replace(self, removed=self.removed.to(device))

    def title(self, number: int) -> str:
        """Return the title of a passage, or an empty string if it is unknown.

        Args:
            number: Index of the passage.
        """
        return "" if self.title_lengths is None else self.texts[number][: int(self.title_lengths[number])]

    def mask_removed(self, scores: Tensor) -> Tensor:
        """Set the scores of removed passages to -inf, so that they are not ranked.

        Args:
            scores: Scores ``[B, N]``.

        Returns:
            Scores ``[B, N]``.
        """
        return scores if self.removed is None else scores.masked_fill(self.removed.to(scores.device), -torch.inf)


@dataclass(frozen=True)
class NodeVectors:
    """Vectors of the nodes of a corpus.

    A node without a vector has zeros. It can only be found through its words and its neighbours.

    Attributes:
        embedding: Vectors ``[N, d]``, float32 in memory and float32 or float16 on disk.
        index: Path of a FAISS index of the first vectors. Its suffix, ``.ivf`` or ``.hnsw``, is its kind. None if there
            is none.
        content: Hash of ids, texts and vectors. None if it has not been computed.
    """

    embedding: Tensor
    index: Path | None = None
    content: str | None = None

    def select(self, nodes: Tensor) -> "NodeVectors":
        """Return the vectors of the given nodes, in memory.

        Args:
            nodes: Node indices ``[n]``.
        """
        return NodeVectors(self.embedding[nodes])

    def to(self, device: str | torch.device) -> "NodeVectors":
        """Return the vectors on another device.

        Args:
            device: Device of the vectors.
        """
        return replace(self, embedding=self.embedding.to(device))
