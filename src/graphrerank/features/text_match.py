"""How many of a query's words a candidate and its neighbours cover together, which no score of one passage tells.

- A question that needs two passages shares some words with each. Scores of single passages rank both low; the words
  that two joined passages cover *together* distinguish them from the rest.
- What a passage and its neighbours hold is computed on bits, one for each of the query's words; rows of numbers exist
  for a block of candidates only. Memory besides the bits is bounded for any number of words, candidates and edges.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.features.word_table import TextWords, WordTable, first_of_equals
from graphrerank.graphs import CorpusGraph, TextStems
from graphrerank.graphs.algebra import graph_index
from graphrerank.text import words
from graphrerank.text.languages import ENGLISH

MATCH_FEATURES = ("query_coverage", "title_coverage", "neighbourhood_coverage")
WORD_FEATURES = tuple(f"query_word_{number}" for number in range(1, 25))
TEXT_MATCH_FEATURES = (*MATCH_FEATURES, *WORD_FEATURES)  # all that a match gives, in its order
BLOCK_CELLS = 1 << 20  # (candidate, word) pairs held at once: 4 MiB of float32 for each of three tensors
BLOCK_BYTES = 1 << 23  # of the bits of edges' sources, held at once

Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Check = Callable[[], None]
Queries = Sequence[str] | TextWords


@dataclass(frozen=True, eq=False)
class MatchedWords:
    """Which of its query's ``T`` words each of ``M`` candidates holds.

    Attributes:
        bits: ``[M, W]``, of 64 words each.
        lead_bits: ``[M, W]``, likewise of each candidate's lead.
        share: ``[B, T]`` float32, each word's share of its query's weight.
        graph: ``[M]`` int64, the query of each candidate.
        check: Called between blocks; may raise.
    """

    bits: Bits
    lead_bits: Bits
    share: Tensor
    graph: Tensor
    check: Check

    def coverage(self, bits: Bits, graph: Tensor) -> Tensor:
        """Sum the shares of the words that rows hold: ``[R]``.

        Args:
            bits: ``[R, W]``.
            graph: ``[R]`` int64, the query of each row.
        """
        return self.sums(bits, graph, self.share)

    def sums(self, bits: Bits, graph: Tensor, weight: Tensor) -> Tensor:
        """Sum the weights ``[B, T]`` of the words that rows hold; as :meth:`coverage`."""
        found = torch.zeros(len(bits))
        num_words = weight.shape[1]
        for rows in _blocks(len(bits), BLOCK_CELLS // max(1, num_words)):
            self.check()
            cells = np.unpackbits(bits[rows].view(np.uint8), axis=1, count=num_words, bitorder="little")
            found[rows] = (torch.from_numpy(cells).float() * (weight if len(weight) == 1 else weight[graph[rows]])).sum(
                1
            )
        return found

    def heaviest(self, share: Tensor, num_words: int) -> Tensor:
        """Return the shares ``[B, T]`` of each query's rarest words where a candidate holds them, the rarest first.

        Returns:
            ``[M, num_words]`` float32; 0 for a word that it does not hold.
        """
        share, order = torch.sort(share, dim=1, descending=True, stable=True)
        share, order = share[:, :num_words], order[:, :num_words]
        found = torch.zeros(len(self.bits), num_words)
        for rows in _blocks(len(self.bits), BLOCK_CELLS // max(1, self.share.shape[1])):
            self.check()
            cells = np.unpackbits(self.bits[rows].view(np.uint8), axis=1, count=self.share.shape[1], bitorder="little")
            graph = self.graph[rows]
            found[rows, : share.shape[1]] = torch.from_numpy(cells).gather(1, order[graph]) * share[graph]
        return found

    def together(self, edge_index: Tensor) -> Bits:
        """Return what each candidate holds together with its neighbours: ``[M, W]``.

        Args:
            edge_index: ``[2, E]`` int64, in any order.
        """
        order = np.argsort(edge_index[1].numpy(), kind="stable")
        source, target = edge_index.numpy()[:, order]
        together = self.bits.copy()
        for edges in _blocks(len(source), BLOCK_BYTES // (8 * self.bits.shape[1])):
            self.check()
            into = target[edges]
            first = np.flatnonzero(first_of_equals(into))
            together[into[first]] |= np.bitwise_or.reduceat(self.bits[source[edges]], first, axis=0)
        return together

    def without_each(self, edge_index: Tensor) -> Tensor:
        """Measure, for each edge, what its target covers together with its other neighbours: ``[E]``.

        Args:
            edge_index: ``[2, E]`` int64, sorted by target; an edge that is there twice is left out once.
        """
        source, target = edge_index.numpy()
        rows = self.bits[target]
        for start, stop in pairwise([*np.flatnonzero(first_of_equals(target)), len(target)]):
            held = self.bits[source[start:stop]]
            rows[start + 1 : stop] |= np.bitwise_or.accumulate(held, axis=0)[:-1]
            rows[start : stop - 1] |= np.bitwise_or.accumulate(held[::-1], axis=0)[-2::-1]
        return self.coverage(rows, self.graph[edge_index[1]])


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

    Args:
        texts: The corpus, ``N`` texts, or their stems; or the candidates of one query without a corpus, which may have
            been read.
        table: Numbers the words, and has read ``texts`` if they were read; a new table if None.
        language: Of texts that no ``table`` reads.
    """

    def __init__(
        self, texts: Sequence[str] | TextWords | TextStems, *, table: WordTable | None = None, language: str = ENGLISH
    ) -> None:
        self._language, self._table = language, WordTable(language) if table is None else table
        self._stems: TextStems | None = None  # that were read before; weights are computed on demand
        if isinstance(texts, TextStems):
            self._stems, self.num_nodes, self._num_words = texts, texts.num_texts, len(texts.words)
            self._ptr, self._word, self._in_lead = texts.ptr, texts.stems, texts.in_lead
            return
        read = texts if isinstance(texts, TextWords) else self._table.read(texts)
        self.num_nodes = read.num_texts
        number, self._number = _by_appearance(read.stems, self._table.num_stems)
        self._num_words = num_words = int(number.max(initial=-1)) + 1
        held, self._in_lead = distinct_keys(read.text_of_stem * num_words + number, read.in_lead)
        node, self._word = np.divmod(held, max(1, num_words))  # of each word that a node holds, ascending
        self._ptr = np.searchsorted(node, np.arange(self.num_nodes + 1))
        self._weight = stem_weights(np.bincount(self._word, minlength=num_words), self.num_nodes)
        lead_weight = self._weight[self._word[self._in_lead]]
        self._lead_weight = sums_of_leads(node[self._in_lead], lead_weight, self.num_nodes)

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
        check: Check = lambda: None,
    ) -> Tensor:
        """Measure the candidates of a batch of queries.

        Args:
            query_texts: ``B`` texts, or the words of them that the table read.
            nodes: ``[M]`` int64 numbers of texts, the candidates of all queries, packed.
            edge_index: ``[2, E]`` int64 edges among them, in packed numbering.
            ptr: ``[B + 1]`` boundaries of the queries in ``nodes``.
            with_words: Whether single words follow.
            check: Called between blocks of the work; may raise.

        Returns:
            ``[M, 3]`` float32 in [0, 1], columns as in ``MATCH_FEATURES``, with words ``[M, 27]`` as in
            ``TEXT_MATCH_FEATURES``; all 0 for a query without words.

        Example:
            >>> match = TextMatch(["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome. A city."])
            >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3])
            >>> match.score(["director of Solaris born in"], torch.arange(3), edges, ptr)
            tensor([[0.2427, 1.0000, 0.4854],
                    [0.2427, 0.0000, 0.4854],
                    [0.0000, 0.0000, 0.0000]])
        """
        word, weight, matched = self._matched(query_texts, nodes, ptr, check)
        known = weight.masked_fill(torch.from_numpy(word < 0), 0.0)
        title = matched.sums(matched.lead_bits, matched.graph, known) / self._lead_weights(nodes)
        alone = matched.coverage(matched.bits, matched.graph)
        together = matched.coverage(matched.together(edge_index), matched.graph) if edge_index.numel() else alone
        found = torch.stack([alone, title.clamp(max=1.0), together], dim=1)
        if not with_words:
            return found
        total = weight.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        return torch.cat([found, matched.heaviest(known / total, len(WORD_FEATURES))], dim=1)

    def matched_words(
        self, query_texts: Queries, nodes: Tensor, ptr: Tensor, *, check: Check = lambda: None
    ) -> MatchedWords:
        """Return which of its query's words each candidate holds; arguments as of :meth:`score`."""
        return self._matched(query_texts, nodes, ptr, check)[2]

    def _matched(
        self, query_texts: Queries, nodes: Tensor, ptr: Tensor, check: Check
    ) -> tuple[Integers, Tensor, MatchedWords]:
        word, weight = self._query_words(query_texts)
        share = weight / weight.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        graph = graph_index(ptr)
        start = self._ptr[nodes.numpy()]
        count = self._ptr[nodes.numpy() + 1] - start
        row = np.repeat(np.arange(len(nodes)), count)
        entry = np.arange(len(row)) + (start - np.cumsum(count) + count)[row]
        query, place = np.nonzero(word >= 0)
        num_words = max(1, self._num_words)
        asked = query * num_words + word[query, place]
        order = np.argsort(asked)
        asked, place = np.append(asked[order], -1), np.append(place[order], 0)  # so that there is one
        wanted = graph.numpy()[row] * num_words + self._word[entry]
        slot = np.searchsorted(asked[:-1], wanted)
        is_asked = asked[slot] == wanted
        row, slot, in_lead = row[is_asked], place[slot[is_asked]], self._in_lead[entry[is_asked]]
        shape = (len(nodes), max(1, -(-word.shape[1] // 64)))
        bits, lead_bits = _bits(row, slot, shape), _bits(row[in_lead], slot[in_lead], shape)
        return word, weight, MatchedWords(bits, lead_bits, share, graph, check)

    def _query_words(self, query_texts: Queries) -> tuple[Integers, Tensor]:
        """Number and weigh each query's different words; -1 for those of no passage; padded with -1 and weight 0."""
        word, is_word = self._numbered(query_texts)
        known = self._weights(np.maximum(word, 0)) if self._num_words else torch.zeros(word.shape)
        if (word < 0).any():
            unknown = float(torch.log1p(torch.tensor(2 * self.num_nodes + 1.0)))
            known = torch.where(torch.from_numpy(word < 0), unknown, known)
        return word, known.masked_fill(torch.from_numpy(~is_word), 0.0)

    def _weights(self, word: Integers) -> Tensor:
        if self._stems is None:
            return self._weight[word]
        return stem_weights(self._stems.texts_with[word], self._stems.num_texts)

    def _lead_weights(self, nodes: Tensor) -> Tensor:
        """Return what the lead of each of some nodes weighs, ``[M]``, summed in the order of the stems' appearance."""
        if self._stems is None:
            return self._lead_weight[nodes]
        start = self._ptr[nodes.numpy()]
        count = self._ptr[nodes.numpy() + 1] - start
        row = np.repeat(np.arange(len(nodes)), count)
        entry = np.arange(len(row)) + (start - np.cumsum(count) + count)[row]
        in_lead = self._in_lead[entry]
        row, word = row[in_lead], self._word[entry[in_lead]]
        by_appearance = np.lexsort((self._stems.order[word], row))
        return sums_of_leads(row, self._weights(word[by_appearance]), len(nodes))

    def _numbered(self, query_texts: Queries) -> tuple[Integers, npt.NDArray[np.bool_]]:
        """Number each query's different words, ``[B, T]``, -1 for those of no passage; and which entries are words."""
        if self._stems is not None:
            if isinstance(query_texts, TextWords):
                raise ValueError("`query_texts` must be strings where the corpus's stems were numbered before")
            rank = self._stems.words.rank
            number = _padded(
                [[rank(word) for word in dict.fromkeys(words(text, self._language))] for text in query_texts], -2
            )
            held = number >= 0
            held[held] = self._stems.texts_with[number[held]] > 0
            return np.where(held, number, -1), number > -2
        read = query_texts if isinstance(query_texts, TextWords) else self._table.read(query_texts)
        ends = np.searchsorted(read.text_of_stem, np.arange(read.num_texts + 1)).tolist()
        stems = read.stems.tolist()
        rows = [list(dict.fromkeys(stems[start:stop])) for start, stop in pairwise(ends)]
        number = _padded(rows, -1)
        is_known = (number >= 0) & (number < len(self._number))
        word = np.where(is_known, self._number[np.where(is_known, number, 0)], -1) if is_known.any() else number * 0 - 1
        return word, number >= 0


def stem_weights(count: Integers, num_texts: int) -> Tensor:
    """Weigh stems by the number of texts that hold each, ``[V]``: ``[V]`` float32."""
    holding = torch.from_numpy(count).double()
    return torch.log1p((num_texts - holding + 0.5) / (holding + 0.5)).float()


def sums_of_leads(text: Integers, weight: Tensor, num_texts: int) -> Tensor:
    """Sum the weights of the stems in each text's lead, ``text [L]`` ascending: ``[num_texts]``, positive."""
    return _sums_of_rows(text, weight, num_texts).clamp(min=torch.finfo(torch.float32).tiny)


def _padded(rows: Sequence[list[int]], fill: int) -> Integers:
    width = max(map(len, rows), default=0)
    return np.array([row + [fill] * (width - len(row)) for row in rows], dtype=np.int64).reshape(len(rows), width)


def _by_appearance(numbers: Integers, size: int) -> tuple[Integers, Integers]:
    """Renumber by first appearance: ``[L]``; and the new number of each of ``size`` old ones, -1 if it is not there.

    Example:
        >>> _by_appearance(np.array([3, 0, 3]), 4)
        (array([0, 1, 0]), array([ 1, -1, -1,  0]))
    """
    place = np.arange(len(numbers))
    first = np.zeros(size, dtype=np.int64)
    first[numbers[::-1]] = place[::-1]  # of equal ones the last assigned, which is the first place, stays
    is_first = first[numbers] == place
    new = np.full(size, -1)
    new[numbers[is_first]] = np.arange(np.count_nonzero(is_first))
    return new[numbers], new


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
