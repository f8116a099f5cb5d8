"""Chunks of equal length in tokens, their halves, their graph of nearest neighbours, and its central chunks."""

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

SEPARATOR = "\n\n"  # between two documents of one chunk
BLOCK_SCORES = 1 << 23  # similarities held at once: 64 MiB of float64
SELECTIONS = ("pagerank", "random")
DECIMALS = 10  # of compared cosines and PageRank scores: rounding errors must not break ties


@dataclass(frozen=True)
class Chunks:
    """Pieces of a corpus, in corpus order."""

    texts: Sequence[str]  # `n` strings
    indptr: Tensor  # `[n + 1]` int64; chunk `i` contains words of the documents `documents[indptr[i]:indptr[i + 1]]`
    documents: Tensor  # `[M]` int64 document indices, ascending within a chunk
    parent: Tensor  # `[n]` int64, the chunk that a sub-chunk was cut from; the chunk itself if nothing is halved
    # of the chunks of an index:
    num_tokens: Tensor = field(default_factory=lambda: torch.zeros(0))  # `[n]` int64, with the line end that follows
    vectors: Tensor = field(default_factory=lambda: torch.zeros(0, 0))  # `[n, d]` float32

    def __len__(self) -> int:
        return len(self.texts)


class TokenStream:
    r"""The concatenated tokens of a corpus, from which chunks of any length are cut."""

    def __init__(self, texts: Sequence[str], tokenizer: Tokenizer) -> None:
        self._text = SEPARATOR.join(texts)
        begins = accumulate((len(text) + len(SEPARATOR) for text in texts), initial=0)
        spans = tokenizer.spans(texts)
        self._starts = [begin + start for begin, tokens in zip(begins, spans, strict=False) for start, _ in tokens]
        self._bounds = list(accumulate(map(len, spans), initial=0))  # of documents, in tokens
        lengths = torch.tensor([len(tokens) for tokens in spans], dtype=torch.int64)
        self._document = torch.repeat_interleave(torch.arange(len(texts)), lengths)

    def __len__(self) -> int:
        return len(self._starts)

    def cut(self, chunk_tokens: int, *, join: bool = True, num_splits: int = 0) -> Chunks:
        r"""Cut the stream every ``chunk_tokens`` tokens, and halve each chunk ``num_splits`` times.

        Source: KET-RAG, section 2.1 and Algorithm 3, line 10. The first half of an odd length is the longer one. A
        single token is not halved, so a short chunk may have fewer than :math:`2^\tau` sub-chunks. ``join``: a chunk
        may span documents; if not, every document begins a new one.
        """
        regions = [(0, len(self))] if join else list(pairwise(self._bounds))
        starts = [(start, stop) for begin, stop in regions for start in range(begin, stop, chunk_tokens)]
        spans = [(start, min(start + chunk_tokens, stop)) for start, stop in starts]
        # A character of several tokens goes to one side of a cut, which may leave the other without text.
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
    """Neighbours of each of ``n`` chunks."""

    lexical: Tensor  # `[n, K / 2]` int64, most shared keywords first, padded with -1
    semantic: Tensor  # `[n, K / 2]` int64, largest cosine first, none of them lexical, padded with -1

    @property
    def edges(self) -> Tensor:
        """``[E, 2]`` int64, unique pairs, the smaller index first, ascending."""
        neighbours = torch.cat([self.lexical, self.semantic], dim=1)
        chunk, column = torch.nonzero(neighbours >= 0, as_tuple=True)
        pair = torch.stack([chunk, neighbours[chunk, column]], dim=1).sort(dim=1).values
        return torch.unique(pair, dim=0)


def build_chunk_graph(keywords: Sequence[Sequence[str]], vectors: Tensor, *, num_neighbours: int = 2) -> ChunkGraph:
    r"""Join each chunk with its nearest neighbours: :math:`K / 2` by shared keywords, then :math:`K / 2` by cosine.

    Source: KET-RAG, Algorithm 3, lines 2 to 7. Ties are broken by chunk index. *Where we differ:* a chunk that shares
    no keyword is no lexical neighbour (Algorithm 3 would take any of them). ``num_neighbours`` is :math:`K`, even.
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
    r"""Score nodes by the stationary distribution of a random walk with restarts on undirected edges: ``[n]``.

    .. math:: \pi = c\,\mathbf{1} / n + (1 - c)\,\pi P, \qquad P_{ij} = 1 / d(i)

    Source: KET-RAG, Eq. (1), whose teleport probability, ``restart_prob``, the paper does not state. A node without an
    edge sends its mass to all nodes evenly. ``tolerance`` bounds the L1 distance from the fixed point.
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
    r"""Choose the :math:`\lceil \beta n \rceil` chunks whose knowledge will be extracted, int64, ascending.

    Source: KET-RAG, Algorithm 3, line 8: the largest by :func:`page_rank`, ties broken by index, or at ``random``.
    """
    num_chunks = len(graph.lexical)
    count = math.ceil(round(share * num_chunks, 9))  # 0.1 * 30 is slightly above 3 in floating point
    if selection == "random":
        order = torch.randperm(num_chunks, generator=torch.Generator().manual_seed(seed))
    else:
        scores = torch.round(page_rank(graph.edges, num_chunks), decimals=DECIMALS)
        order = torch.argsort(scores, descending=True, stable=True)
    return order[:count].sort().values
