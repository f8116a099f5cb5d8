"""How many of a query's words a candidate and its neighbours cover together, which no score of one passage tells.

- A question that needs two passages shares some words with each. Scores of single passages rank both low; the words
  that two joined passages cover *together* distinguish them from the rest.
- Words that a passage and its neighbours hold are bits; rows of numbers exist for a block of candidates only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.core.graph_algebra import graph_of_nodes
from graphrerank.corpus import CorpusGraph, TextStems
from graphrerank.corpus.packed_strings import slots_of
from graphrerank.features.word_table import TextWords, WordTable, first_of_equals
from graphrerank.text import words
from graphrerank.text.languages import ENGLISH
from graphrerank.utils.checks import UserError

MATCH_FEATURES = ("query_coverage", "title_coverage", "neighbourhood_coverage")
WORD_FEATURES = tuple(f"query_word_{number}" for number in range(1, 25))
TEXT_MATCH_FEATURES = (*MATCH_FEATURES, *WORD_FEATURES)  # all that a match gives, in its order
BLOCK_CELLS = 1 << 20  # (candidate, word) pairs held at once: 4 MiB of float32 for each of three tensors
BLOCK_BYTES = 1 << 23  # of the bits of edges' sources, held at once
PADDING = -2

Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Queries = Sequence[str] | TextWords


@dataclass(frozen=True, eq=False)
class MatchedWords:
    """Words of each query, of ``T``, that each of ``M`` candidates contains."""

    bits: Bits  # `[M, W]`, of 64 words each
    lead_bits: Bits  # `[M, W]`, likewise of each candidate's lead
    known: Tensor  # `[B, T]` float32, each word's weight; 0 where no passage holds it
    total: Tensor  # `[B, 1]` float32, the weight of all words of the query
    share: Tensor  # `[B, T]` float32, each word's share of it
    graph: Tensor  # `[M]` int64, the query of each candidate

    def sums(self, bits: Bits, graph: Tensor, weight: Tensor) -> Tensor:
        """Sum the weights ``[B, T]`` of the words that rows ``[R, W]`` of the queries ``[R]`` hold: ``[R]``."""
        found = torch.zeros(len(bits))
        for rows, cells in self._cells(bits):
            found[rows] = (cells.float() * (weight if len(weight) == 1 else weight[graph[rows]])).sum(1)
        return found

    def heaviest(self, num_words: int) -> Tensor:
        """Return the shares of each query's rarest known words where a candidate holds them: ``[M, num_words]``."""
        share, order = torch.sort(self.known / self.total, dim=1, descending=True, stable=True)
        share, order = share[:, :num_words], order[:, :num_words]
        found = torch.zeros(len(self.bits), num_words)
        for rows, cells in self._cells(self.bits):
            graph = self.graph[rows]
            found[rows, : share.shape[1]] = cells.gather(1, order[graph]) * share[graph]
        return found

    def _cells(self, bits: Bits) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows of bits, and for each word 1 or 0."""
        num_words = self.share.shape[1]
        for rows in _blocks(len(bits), BLOCK_CELLS // max(1, num_words)):
            cells = np.unpackbits(bits[rows].view(np.uint8), axis=1, count=num_words, bitorder="little")
            yield rows, torch.from_numpy(cells)

    def together(self, edge_index: Tensor) -> Bits:
        """Return what each candidate holds together with its neighbours, ``[M, W]``; edges ``[2, E]`` in any order."""
        order = np.argsort(edge_index[1].numpy(), kind="stable")
        source, target = edge_index.numpy()[:, order]
        together = self.bits.copy()
        for edges in _blocks(len(source), BLOCK_BYTES // (8 * self.bits.shape[1])):
            into = target[edges]
            first = np.flatnonzero(first_of_equals(into))
            together[into[first]] |= np.bitwise_or.reduceat(self.bits[source[edges]], first, axis=0)
        return together

    def without_each(self, edge_index: Tensor) -> Tensor:
        """Measure, for each edge, what its target covers together with its other neighbours: ``[E]``.

        The edges ``[2, E]`` are sorted by target; an edge that is there twice is left out once.
        """
        source, target = edge_index.numpy()
        rows = self.bits[target]
        for start, stop in pairwise([*np.flatnonzero(first_of_equals(target)), len(target)]):
            held = self.bits[source[start:stop]]
            rows[start + 1 : stop] |= np.bitwise_or.accumulate(held, axis=0)[:-1]
            rows[start : stop - 1] |= np.bitwise_or.accumulate(held[::-1], axis=0)[-2::-1]
        return self.sums(rows, self.graph[edge_index[1]], self.share)


class TextMatch:
    r"""Measure the share of a query's words, weighted by rarity, that a candidate covers alone and with its neighbours.

    With :math:`w(t) = \ln(1 + (N - n_t + 0.5) / (n_t + 0.5))` (BM25's weight; :math:`n_t` of :math:`N` passages hold
    word :math:`t`) and :math:`c(T) = \sum_{t \in q \cap T} w(t) / \sum_{t \in q} w(t)`, the features are

    - ``query_coverage``: :math:`c` of the passage's words;
    - ``title_coverage``: the weighted share of the words of its first sentence that the query holds;
    - ``neighbourhood_coverage``: :math:`c` of the words of the passage and all its neighbours together;
    - ``query_word_1`` to ``query_word_24``: :math:`c` of each single one of the query's rarest words that some passage
      holds, the rarest first. From these a model finds what any passages cover together, whatever edges join them.

    All lie in [0, 1]. Neighbours are those among the candidates; without any, the third equals the first.

    ``texts`` are the corpus, ``N`` texts or their stems; or the candidates of one query without a corpus. ``table``
    numbers the words, and has read ``texts`` if they were read; ``language`` is that of texts that no table reads.
    """

    def __init__(
        self, texts: Sequence[str] | TextWords | TextStems, *, table: WordTable | None = None, language: str = ENGLISH
    ) -> None:
        self._language, self._table = language, WordTable(language) if table is None else table
        self._stems = texts if isinstance(texts, TextStems) else None
        if isinstance(texts, TextStems):
            self.num_nodes, self._texts_with = texts.num_texts, texts.texts_with
            self._ptr, self._word, self._in_lead = texts.ptr, texts.stems, texts.in_lead
            return
        read = texts if isinstance(texts, TextWords) else self._table.read(texts)
        self.num_nodes, num_words = read.num_texts, self._table.num_stems
        held, self._in_lead = distinct_keys(read.text_of_stem * num_words + read.stems, read.in_lead)
        node, self._word = np.divmod(held, max(1, num_words))  # of each word that a node holds, ascending
        self._ptr = np.searchsorted(node, np.arange(self.num_nodes + 1))
        self._texts_with = np.bincount(self._word, minlength=num_words)

    @classmethod
    def of(cls, graph: CorpusGraph) -> "TextMatch":
        """Match with a corpus's texts, whose words may have been read before."""
        words = graph.passages.words
        return cls(graph.texts if words is None else words.stems, language=graph.passages.language)

    def score(
        self,
        query_texts: Queries,
        nodes: Tensor,
        edge_index: Tensor,
        ptr: Tensor,
        *,
        with_words: bool = False,
    ) -> Tensor:
        """Measure the candidates of ``B`` queries: their texts, or the words of them that the table read.

        ``nodes [M]`` are the numbers of all candidates' texts, packed, ``edge_index [2, E]`` the edges among them in
        packed numbering, ``ptr [B + 1]`` the boundaries of the queries. Returns ``[M, 3]`` float32 in [0, 1], columns
        as in ``MATCH_FEATURES``, with words ``[M, 27]`` as in ``TEXT_MATCH_FEATURES``; all 0 for a query without words.

        Example:
            >>> match = TextMatch(["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome. A city."])
            >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3])
            >>> match.score(["director of Solaris born in"], torch.arange(3), edges, ptr)
            tensor([[0.2427, 1.0000, 0.4854],
                    [0.2427, 0.0000, 0.4854],
                    [0.0000, 0.0000, 0.0000]])
        """
        matched = self.matched_words(query_texts, nodes, ptr)
        graph, share = matched.graph, matched.share
        title = matched.sums(matched.lead_bits, graph, matched.known) / self._lead_weights(nodes)
        alone = matched.sums(matched.bits, graph, share)
        together = matched.sums(matched.together(edge_index), graph, share) if edge_index.numel() else alone
        found = torch.stack([alone, title.clamp(max=1.0), together], dim=1)
        return torch.cat([found, matched.heaviest(len(WORD_FEATURES))], dim=1) if with_words else found

    def matched_words(self, query_texts: Queries, nodes: Tensor, ptr: Tensor) -> MatchedWords:
        """Return which of its query's words each candidate holds; arguments as of :meth:`score`."""
        word = self._numbered(query_texts)
        weight = self._weights(word)
        total = weight.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        known = weight.masked_fill(torch.from_numpy(word < 0), 0.0)
        graph = graph_of_nodes(ptr, len(nodes))
        row, entry = self._entries(nodes)
        query, place = np.nonzero(word >= 0)
        num_words = max(1, len(self._texts_with))
        asked = query * num_words + word[query, place]
        order = np.argsort(asked)
        asked, place = np.append(asked[order], -1), np.append(place[order], 0)  # so that there is one
        wanted = graph.numpy()[row] * num_words + self._word[entry]
        slot = np.searchsorted(asked[:-1], wanted)
        is_asked = asked[slot] == wanted
        row, slot, in_lead = row[is_asked], place[slot[is_asked]], self._in_lead[entry[is_asked]]
        shape = (len(nodes), max(1, -(-word.shape[1] // 64)))
        bits, lead_bits = _bits(row, slot, shape), _bits(row[in_lead], slot[in_lead], shape)
        return MatchedWords(bits, lead_bits, known, total, weight / total, graph)

    def _entries(self, nodes: Tensor) -> tuple[Integers, Integers]:
        """Return the words of some nodes ``[M]``: the place in ``nodes`` and the number of each entry."""
        rows = nodes.numpy()
        if self._stems is not None and self._stems.rows is not None:
            rows = self._stems.rows[rows]
        return slots_of(self._ptr[rows], self._ptr[rows + 1])

    def _weights(self, word: Integers) -> Tensor:
        """Weigh words by their numbers, of any shape; 0 for padding, -2."""
        unknown = torch.log1p(torch.tensor(2 * self.num_nodes + 1.0))
        weight = unknown.expand(word.shape)
        if (word >= 0).any():
            holding = torch.from_numpy(self._texts_with[np.maximum(word, 0)]).double()
            known = torch.log1p((self.num_nodes - holding + 0.5) / (holding + 0.5)).float()
            weight = torch.where(torch.from_numpy(word < 0), unknown, known)
        return weight.masked_fill(torch.from_numpy(word == PADDING), 0.0)

    def _lead_weights(self, nodes: Tensor) -> Tensor:
        """Return what the lead of each of some nodes weighs, ``[M]``, summed from the lightest word up."""
        row, entry = self._entries(nodes)
        in_lead = self._in_lead[entry]
        row, weight = row[in_lead], self._weights(self._word[entry[in_lead]])
        weight = weight[np.lexsort((weight.numpy(), row))]
        return _sums_of_rows(row, weight, len(nodes)).clamp(min=torch.finfo(torch.float32).tiny)

    def _numbered(self, query_texts: Queries) -> Integers:
        """Number each query's different words, ``[B, T]``: -1 for those of no passage, -2 for padding."""
        if self._stems is not None:
            if isinstance(query_texts, TextWords):
                raise UserError("`query_texts` must be strings where the corpus's stems were numbered before")
            rank = self._stems.words.rank
            rows = [[rank(word) for word in dict.fromkeys(words(text, self._language))] for text in query_texts]
        else:
            read = query_texts if isinstance(query_texts, TextWords) else self._table.read(query_texts)
            ends = np.searchsorted(read.text_of_stem, np.arange(read.num_texts + 1)).tolist()
            stems = read.stems.tolist()
            rows = [list(dict.fromkeys(stems[start:stop])) for start, stop in pairwise(ends)]
        width = max(map(len, rows), default=0)
        padded = [row + [PADDING] * (width - len(row)) for row in rows]
        number = np.array(padded, dtype=np.int64).reshape(len(rows), width)
        is_held = (number >= 0) & (number < len(self._texts_with))
        is_held[is_held] = self._texts_with[number[is_held]] > 0
        return np.where(is_held | (number == PADDING), number, -1)


def distinct_keys(keys: Integers, marked: npt.NDArray[np.bool_]) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Sort keys, each once, and return whether any of its occurrences was marked."""
    both = np.sort(2 * keys + ~marked)  # marked ones first
    both = both[first_of_equals(both >> 1)]
    return both >> 1, (both & 1) == 0


def _sums_of_rows(row: Integers, entries: Tensor, num_rows: int) -> Tensor:
    """Sum the entries of each row, rows ascending; those of one length together, each by itself as ``Tensor.sum``."""
    sums = torch.zeros(num_rows)
    length = np.bincount(row, minlength=num_rows)
    start = np.cumsum(length) - length
    for size in np.flatnonzero(np.bincount(length, minlength=1)[1:]).tolist():
        size += 1
        rows = np.flatnonzero(length == size)
        sums[rows] = entries[start[rows][:, None] + np.arange(size)].sum(1)
    return sums


def _bits(row: Integers, slot: Integers, shape: tuple[int, int]) -> Bits:
    """Set the bit ``slot`` of each ``row``."""
    flat = np.zeros(shape[0] * shape[1], dtype="<u8")
    np.bitwise_or.at(flat, row * shape[1] + (slot >> 6), np.left_shift(np.uint64(1), (slot & 63).astype(np.uint64)))
    return flat.reshape(shape)


def _blocks(count: int, at_once: int) -> Iterator[slice]:
    return (slice(start, start + max(1, at_once)) for start in range(0, count, max(1, at_once)))
