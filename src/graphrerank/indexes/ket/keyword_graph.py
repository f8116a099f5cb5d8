"""KET-RAG's text-keyword bipartite graph: which keyword stands in which sub-chunk, and a vector of each keyword."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.text import find_keywords, split_sentences


@dataclass(frozen=True)
class KeywordGraph:
    """Keywords, their vectors and their sub-chunks.

    Keywords that stand in the same sentences have the same vector and the same sub-chunks: they share a row. About half
    of a corpus's words stand in one sentence alone, so that there are far fewer rows than keywords.

    Attributes:
        keywords: ``W`` strings, in the order of their first places.
        row: ``[W]`` int64, each keyword's row; rows are numbered by their first keyword.
        vectors: ``[G, d]`` float32 unit vectors: the direction of the mean over the sentences that hold the keyword.
        indptr: ``[G + 1]`` int64; keywords of row ``i`` stand in the sub-chunks ``indices[indptr[i]:indptr[i + 1]]``.
        indices: ``[M]`` int64 sub-chunk numbers, ascending within a row.
    """

    keywords: Sequence[str]
    row: Tensor
    vectors: Tensor
    indptr: Tensor
    indices: Tensor

    @property
    def num_edges(self) -> int:
        """Edges between keywords and sub-chunks; those of a shared row count for each of its keywords."""
        return int(self.indptr.diff()[self.row].sum())


def keyword_sentences(texts: Sequence[str]) -> tuple[list[str], list[int], list[list[str]]]:
    """Cut texts into sentences, and leave out those without a keyword.

    Returns:
        The sentences, the number of the text of each, and the keywords of each.
    """
    sentences, places, words = [], [], []
    for place, text in enumerate(texts):
        for start, stop in split_sentences(text):
            if found := find_keywords(text[start:stop]):
                sentences.append(text[start:stop])
                places.append(place)
                words.append(found)
    return sentences, places, words


def build_keyword_graph(texts: Sequence[str], encode: Callable[[Sequence[str]], Tensor]) -> KeywordGraph:
    """Link each keyword to the sub-chunks that hold it, with the mean vector of the sentences that hold it.

    Source: KET-RAG, Algorithm 3, lines 11 to 15, and section 5.1. Vectors are of unit length, for retrieval by cosine.

    Args:
        texts: ``m`` sub-chunks.
        encode: Gives ``[n, d]`` vectors of ``n`` sentences.

    Example:
        >>> graph = build_keyword_graph(["Metz fell.", "Metz rose."], lambda texts: torch.eye(2))
        >>> list(graph.keywords), graph.row.tolist(), graph.indices.tolist()
        (['metz', 'fell', 'rose'], [0, 1, 2], [0, 1, 0, 1])
        >>> graph.vectors[0]
        tensor([0.7071, 0.7071])
    """
    sentences, places, words = keyword_sentences(texts)
    vectors = encode(sentences).float()
    holders: dict[str, list[int]] = {}
    for sentence, found in enumerate(words):
        for word in found:
            holders.setdefault(word, []).append(sentence)
    rows: dict[tuple[int, ...], int] = {}
    row = [rows.setdefault(tuple(own), len(rows)) for own in holders.values()]
    sentence_ptr = np.cumsum([0, *map(len, rows)])
    flat = np.asarray([sentence for own in rows for sentence in own], dtype=np.int64)
    shares = np.repeat(1 / np.maximum(np.diff(sentence_ptr), 1), np.diff(sentence_ptr)).astype(np.float32)
    mean = sparse.csr_matrix((shares, flat, sentence_ptr), shape=(len(rows), len(sentences))) @ vectors.numpy()
    held = [sorted({places[sentence] for sentence in own}) for own in rows]
    return KeywordGraph(
        keywords=list(holders),
        row=torch.tensor(row, dtype=torch.int64),
        vectors=torch.nn.functional.normalize(torch.from_numpy(mean), dim=1),
        indptr=torch.from_numpy(np.cumsum([0, *map(len, held)])),
        indices=torch.tensor([place for own in held for place in own], dtype=torch.int64),
    )
