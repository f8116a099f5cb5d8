"""Divide a corpus into chunks of equal length, build their nearest-neighbour graph, and select its central chunks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.core import top_k_by_node_order
from graphrerank.text import Tokenizer

#: Separator between documents that share a chunk.
CHUNK_SEPARATOR = "\n\n"
#: Maximum number of similarities in memory at once (64 MiB of float64).
BLOCK_SCORES = 1 << 23
SELECTIONS = ("pagerank", "random")
#: Number of decimals of the compared cosines and PageRank scores, so that rounding errors do not break ties.
DECIMALS = 10


@dataclass(frozen=True)
class Chunks:
    """Chunks of a corpus, in corpus order.

    Attributes:
        texts: Texts of the ``n`` chunks.
        indptr: Row pointers ``[n + 1]`` int64. Chunk ``i`` overlaps the documents
            ``documents[indptr[i]:indptr[i + 1]]``.
        documents: Document indices ``[M]`` int64, ascending within a chunk.
        parent: Index of the chunk that each sub-chunk was cut from, ``[n]`` int64. Without splits, the chunk's own
            index.
        num_tokens: Number of tokens of each chunk and the line end after it, ``[n]`` int64. Empty before the chunks are
            part of an index.
        vectors: Vectors of the chunks ``[n, d]`` float32. Empty before the chunks are part of an index.
    """

    texts: Sequence[str]
    indptr: Tensor
    documents: Tensor
    parent: Tensor
    num_tokens: Tensor = field(default_factory=lambda: torch.zeros(0))
    vectors: Tensor = field(default_factory=lambda: torch.zeros(0, 0))

    def __len__(self) -> int:
        return len(self.texts)


class TokenStream:
    """Concatenated tokens of a corpus, which can be cut into chunks of any length.

    Args:
        texts: Texts of the documents.
        tokenizer: Tokenizer that defines the length of a chunk.
    """

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        self._text = CHUNK_SEPARATOR.join(texts)
        begins = accumulate((len(text) + len(CHUNK_SEPARATOR) for text in texts), initial=0)
        spans = tokenizer.spans(texts)
        self._starts = [begin + start for begin, tokens in zip(begins, spans, strict=False) for start, _ in tokens]
        self._bounds = list(accumulate(map(len, spans), initial=0))  # token offsets of the documents
        lengths = torch.tensor([len(tokens) for tokens in spans], dtype=torch.int64)
        self._document = torch.repeat_interleave(torch.arange(len(texts)), lengths)

    def __len__(self) -> int:
        return len(self._starts)

    def cut(self, chunk_tokens: int, *, join: bool = True, num_splits: int = 0) -> Chunks:
        r"""Cut the tokens into chunks of equal length, and halve each chunk repeatedly.

        Source: "KET-RAG", 2025, section 2.1 and Algorithm 3, line 10. If a length is odd, the first half is longer. A
        single token is not halved, so a short chunk may have fewer than :math:`2^\tau` sub-chunks.

        Args:
            chunk_tokens: Number of tokens per chunk.
            join: Whether a chunk may span documents. If False, every document starts a new chunk.
            num_splits: Number of times :math:`\tau` that each chunk is halved.

        Returns:
            Sub-chunks in corpus order, without their lengths and vectors.

        Example:
            >>> from graphrerank.text import WordTokenizer
            >>> TokenStream(["one two three", "four"], WordTokenizer()).cut(2).texts
            ['one two', 'three\n\nfour']
        """
        regions = [(0, len(self))] if join else list(pairwise(self._bounds))
        starts = [(start, stop) for begin, stop in regions for start in range(begin, stop, chunk_tokens)]
        spans = [(start, min(start + chunk_tokens, stop)) for start, stop in starts]
        # A cut may fall between two tokens of a single character, which leaves one side without text.
        ranges = [(*span, chunk) for chunk, span in enumerate(span for span in spans if self._text_between(*span))]
        for _ in range(num_splits):
            middles = [((start + stop + 1) // 2, start, stop, chunk) for start, stop, chunk in ranges]
            halves = [half for m, start, stop, chunk in middles for half in ((start, m, chunk), (m, stop, chunk))]
            ranges = [(start, stop, chunk) for start, stop, chunk in halves if start < stop]
        ranges = [(start, stop, chunk) for start, stop, chunk in ranges if self._text_between(start, stop)]
        documents = [torch.unique_consecutive(self._document[start:stop]) for start, stop, _ in ranges]
        texts = [self._text_between(start, stop) for start, stop, _ in ranges]
        indptr = torch.tensor(list(accumulate(map(len, documents), initial=0)))
        parent = torch.tensor([chunk for _, _, chunk in ranges], dtype=torch.int64)
        return Chunks(texts, indptr, torch.cat([*documents, self._document[:0]]), parent)

    def _text_between(self, start: int, stop: int) -> str:
        end = self._starts[stop] if stop < len(self) else len(self._text)
        return self._text[self._starts[start] : end].strip()


@dataclass(frozen=True)
class ChunkGraph:
    """Nearest neighbours of each of ``n`` chunks.

    Attributes:
        lexical: Neighbours by number of shared keywords ``[n, K / 2]`` int64, most similar first, padded with -1.
        semantic: Neighbours by cosine similarity ``[n, K / 2]`` int64, most similar first, padded with -1. Lexical
            neighbours are excluded.
    """

    lexical: Tensor
    semantic: Tensor

    @property
    def edges(self) -> Tensor:
        """Undirected edges ``[E, 2]`` int64: unique pairs, smaller index first, in ascending order."""
        neighbours = torch.cat([self.lexical, self.semantic], dim=1)
        chunk, column = torch.nonzero(neighbours >= 0, as_tuple=True)
        pair = torch.stack([chunk, neighbours[chunk, column]], dim=1).sort(dim=1).values
        return torch.unique(pair, dim=0)


def build_chunk_graph(keywords: Sequence[Sequence[str]], vectors: Tensor, *, num_neighbours: int = 2) -> ChunkGraph:
    r"""Find the nearest neighbours of each chunk: :math:`K / 2` by shared keywords, then :math:`K / 2` by cosine.

    Source: "KET-RAG", 2025, Algorithm 3, lines 2 to 7. Ties are broken by chunk index. *Differences from the paper:* a
    chunk without a shared keyword is never a lexical neighbour. Algorithm 3 fills up with such chunks.

    Args:
        keywords: Keywords of each of the ``n`` chunks.
        vectors: Vectors of the chunks ``[n, d]``.
        num_neighbours: Number of neighbours :math:`K` per chunk. Must be even.

    Returns:
        Lexical and semantic neighbours of each chunk.

    Example:
        >>> graph = build_chunk_graph([["metz"], ["rome"], ["metz"]], torch.eye(3))
        >>> graph.lexical.tolist(), graph.semantic.tolist()
        ([[2], [-1], [0]], [[1], [0], [1]])
    """
    num_chunks, half = len(keywords), num_neighbours // 2
    column_of = {word: column for column, word in enumerate(dict.fromkeys(chain.from_iterable(keywords)))}
    columns = np.asarray([column_of[word] for words in keywords for word in words], dtype=np.int64)
    indptr, shape = np.cumsum([0, *map(len, keywords)]), (num_chunks, len(column_of))
    incidence = sparse.csr_matrix((np.ones(len(columns), dtype=np.float32), columns, indptr), shape=shape)
    transposed = incidence.T.tocsc()
    unit = torch.nn.functional.normalize(vectors.double(), dim=1)
    rows = max(1, BLOCK_SCORES // max(1, num_chunks))
    lexical, semantic = [], []
    for start in range(0, num_chunks, rows):
        shared = torch.from_numpy((incidence[start : start + rows] @ transposed).toarray())
        row_index = torch.arange(len(shared))
        shared[row_index, start + row_index] = 0
        by_words, _ = top_k_by_node_order(shared.masked_fill(shared == 0, -torch.inf), half)
        cosine = torch.round(unit[start : start + rows] @ unit.T, decimals=DECIMALS)
        cosine[row_index, start + row_index] = -torch.inf
        row, column = torch.nonzero(by_words >= 0, as_tuple=True)
        cosine[row, by_words[row, column]] = -torch.inf
        lexical.append(by_words)
        semantic.append(top_k_by_node_order(cosine, half)[0])
    none = torch.zeros(0, half, dtype=torch.int64)
    return ChunkGraph(torch.cat([none, *lexical]), torch.cat([none, *semantic]))


def page_rank(edges: Tensor, num_nodes: int, *, restart_prob: float = 0.15, tolerance: float = 1e-12) -> Tensor:
    r"""Compute the PageRank scores of an undirected graph.

    .. math:: \pi = c\,\mathbf{1} / n + (1 - c)\,\pi P, \qquad P_{ij} = 1 / d(i)

    Source: "KET-RAG", 2025, Eq. (1). The paper does not state the teleport probability :math:`c`. A node without edges
    distributes its score evenly over all nodes.

    Args:
        edges: Undirected edges ``[E, 2]`` int64.
        num_nodes: Number of nodes ``n``.
        restart_prob: Teleport probability :math:`c`, in (0, 1].
        tolerance: Maximum L1 distance from the fixed point.

    Returns:
        Scores ``[n]`` float64. They sum to 1.

    Example:
        >>> page_rank(torch.tensor([[0, 1]]), 2)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    source, target = torch.cat([edges, edges.flip(1)]).T
    degree = torch.bincount(source, minlength=num_nodes)
    share = torch.where(degree > 0, 1.0 / degree.double(), 0.0)
    rank = torch.full((num_nodes,), 1.0 / max(1, num_nodes), dtype=torch.float64)
    moved = 1.0
    while moved * (1 - restart_prob) / restart_prob > tolerance:
        walked = torch.zeros_like(rank).index_add_(0, target, (rank * share)[source])
        lost = rank[degree == 0].sum()
        following = (restart_prob + (1 - restart_prob) * lost) / max(1, num_nodes) + (1 - restart_prob) * walked
        moved = float((following - rank).abs().sum())
        rank = following
    return rank


def core_chunks(graph: ChunkGraph, *, share: float, selection: str = "pagerank", seed: int = 0) -> Tensor:
    r"""Return the :math:`\lceil \beta n \rceil` core chunks, from which knowledge is extracted.

    Source: "KET-RAG", 2025, Algorithm 3, line 8.

    Args:
        graph: Nearest-neighbour graph of the ``n`` chunks.
        share: Share :math:`\beta` of the chunks to select, in [0, 1].
        selection: ``pagerank`` selects the chunks with the highest :func:`page_rank`, and breaks ties by index.
            ``random`` selects at random.
        seed: Random seed. Only used by ``random``.

    Returns:
        Indices of the core chunks, int64, ascending.
    """
    num_chunks = len(graph.lexical)
    count = math.ceil(round(share * num_chunks, 9))  # 0.1 * 30 is slightly above 3 in floating point
    if selection == "random":
        order = torch.randperm(num_chunks, generator=torch.Generator().manual_seed(seed))
    else:
        scores = torch.round(page_rank(graph.edges, num_chunks), decimals=DECIMALS)
        order = torch.argsort(scores, descending=True, stable=True)
    return order[:count].sort().values
