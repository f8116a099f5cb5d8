"""KET-RAG's text-keyword bipartite graph: links of keywords to sub-chunks, and a vector of each keyword."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.text import split_sentences
from graphrerank.text.languages import detect_language
from graphrerank_papers.knowledge.keywords import find_keywords


@dataclass(frozen=True)
class KeywordGraph:
    """Keywords, their vectors and their sub-chunks.

    Keywords that occur in the same sentences have the same vector and sub-chunks and share a row. About half of a
    corpus's words occur in a single sentence, so there are far fewer rows than keywords.
    """

    keywords: Sequence[str]  # `W` strings, in order of first occurrence
    row: Tensor  # `[W]` int64, each keyword's row, in order of first occurrence
    vectors: Tensor  # `[G, d]` float32, the normalised mean vector of the sentences that contain the keyword
    indptr: Tensor  # `[G + 1]` int64; keywords of row `i` occur in the sub-chunks `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[M]` int64 sub-chunk indices, ascending within a row

    @property
    def num_edges(self) -> int:
        """Number of edges between keywords and sub-chunks."""
        return int(self.indptr.diff()[self.row].sum())


def keyword_sentences(texts: Sequence[str]) -> tuple[list[str], list[int], list[list[str]]]:
    """Split texts into sentences with a keyword; return them, and the text index and the keywords of each."""
    sentences, text_indices, keywords = [], [], []
    language = detect_language(texts)
    for text_index, text in enumerate(texts):
        for start, stop in split_sentences(text, language):
            if sentence_keywords := find_keywords(text[start:stop], language):
                sentences.append(text[start:stop])
                text_indices.append(text_index)
                keywords.append(sentence_keywords)
    return sentences, text_indices, keywords


def build_keyword_graph(texts: Sequence[str], encode: Callable[[Sequence[str]], Tensor]) -> KeywordGraph:
    """Link each keyword to the sub-chunks that contain it, and average the vectors of its sentences.

    Source: KET-RAG, Algorithm 3, lines 11 to 15, and section 5.1. Means are normalised, for retrieval by cosine.
    ``encode`` encodes ``n`` sentences as ``[n, d]``.

    Example:
        >>> graph = build_keyword_graph(["Metz fell.", "Metz rose."], lambda texts: torch.eye(2))
        >>> list(graph.keywords), graph.row.tolist(), graph.indices.tolist()
        (['metz', 'fell', 'rose'], [0, 1, 2], [0, 1, 0, 1])
        >>> graph.vectors[0]
        tensor([0.7071, 0.7071])
    """
    sentences, text_indices, sentence_keywords = keyword_sentences(texts)
    vectors = encode(sentences).float()
    keyword_places: dict[str, list[int]] = {}
    for sentence, keywords in enumerate(sentence_keywords):
        for keyword in keywords:
            keyword_places.setdefault(keyword, []).append(sentence)
    row_of: dict[tuple[int, ...], int] = {}  # row of each set of sentences
    row = [row_of.setdefault(tuple(places), len(row_of)) for places in keyword_places.values()]
    sentence_ptr = np.cumsum([0, *map(len, row_of)])
    row_sentences = np.asarray([sentence for places in row_of for sentence in places], dtype=np.int64)
    shares = np.repeat(1 / np.maximum(np.diff(sentence_ptr), 1), np.diff(sentence_ptr)).astype(np.float32)
    averaging = sparse.csr_matrix((shares, row_sentences, sentence_ptr), shape=(len(row_of), len(sentences)))
    sub_chunks = [sorted({text_indices[sentence] for sentence in places}) for places in row_of]
    return KeywordGraph(
        keywords=list(keyword_places),
        row=torch.tensor(row, dtype=torch.int64),
        vectors=torch.nn.functional.normalize(torch.from_numpy(averaging @ vectors.numpy()), dim=1),
        indptr=torch.from_numpy(np.cumsum([0, *map(len, sub_chunks)])),
        indices=torch.tensor([chunk for chunks in sub_chunks for chunk in chunks], dtype=torch.int64),
    )
