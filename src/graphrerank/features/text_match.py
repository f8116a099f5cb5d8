"""Text-match features: how many words of a query a candidate covers alone and together with its neighbours.

A question that needs two passages shares only a few words with each of them, so scores of single passages rank both
low. The words that two connected passages cover *together* distinguish them from other passages.

The words of each passage are stored as bits. They are expanded to numbers for one block of candidates at a time.
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

#: Names of the coverage features.
MATCH_FEATURES = ("query_coverage", "title_coverage", "neighbourhood_coverage")
#: Names of the features of single words.
WORD_FEATURES = tuple(f"query_word_{number}" for number in range(1, 25))
#: Names of all features of :class:`TextMatch`, in order.
TEXT_MATCH_FEATURES = (*MATCH_FEATURES, *WORD_FEATURES)
#: Largest number of (candidate, word) pairs in memory at once: 4 MiB of float32 for each of three tensors.
BLOCK_CELLS = 1 << 20
#: Largest number of bytes of word bits that are gathered for edges at once.
BLOCK_BYTES = 1 << 23
#: Word index that marks padding.
PADDING = -2

Integers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Queries = Sequence[str] | TextWords


@dataclass(frozen=True, eq=False)
class MatchedWords:
    """Query words that each candidate contains.

    ``B`` is the number of queries, ``T`` the largest number of words of a query, ``M`` the number of candidates of all
    queries, and ``W`` the number of 64-bit integers for ``T`` bits.

    Attributes:
        bits: Query words that each candidate contains, as bits ``[M, W]``.
        lead_bits: Query words that the first sentence of each candidate contains, as bits ``[M, W]``.
        weight: Weight of each query word, ``[B, T]`` float32, 0 for words that no passage contains.
        total: Sum of the weights of all words of each query, ``[B, 1]`` float32.
        share: Weight of each query word divided by ``total``, ``[B, T]`` float32.
        graph: Index of the query of each candidate, ``[M]`` int64.
    """

    bits: Bits
    lead_bits: Bits
    weight: Tensor
    total: Tensor
    share: Tensor
    graph: Tensor

    def sums(self, bits: Bits, graph: Tensor, weight: Tensor) -> Tensor:
        """Return the sum of the weights of the words in each row of bits.

        Args:
            bits: Rows of bits ``[R, W]``.
            graph: Index of the query of each row, ``[R]``.
            weight: Weight of each query word, ``[B, T]``.

        Returns:
            Sums ``[R]``, float32.
        """
        sums = torch.zeros(len(bits))
        for rows, cells in self._cells(bits):
            weight_of_row = weight if len(weight) == 1 else weight[graph[rows]]
            sums[rows] = (cells.float() * weight_of_row).sum(1)
        return sums

    def heaviest(self, num_words: int) -> Tensor:
        """Return the shares of each query's rarest words, and 0 for words that a candidate lacks.

        Args:
            num_words: Number of words per query.

        Returns:
            Shares ``[M, num_words]``, rarest word first. 0 if the candidate does not contain the word.
        """
        share, order = torch.sort(self.weight / self.total, dim=1, descending=True, stable=True)
        share, order = share[:, :num_words], order[:, :num_words]
        shares = torch.zeros(len(self.bits), num_words)
        for rows, cells in self._cells(self.bits):
            graph = self.graph[rows]
            shares[rows, : share.shape[1]] = cells.gather(1, order[graph]) * share[graph]
        return shares

    def _cells(self, bits: Bits) -> Iterator[tuple[slice, Tensor]]:
        """Yield blocks of rows, and their bits as a tensor of ones and zeros."""
        num_words = self.share.shape[1]
        for rows in _blocks(len(bits), BLOCK_CELLS // max(1, num_words)):
            cells = np.unpackbits(bits[rows].view(np.uint8), axis=1, count=num_words, bitorder="little")
            yield rows, torch.from_numpy(cells)

    def together(self, edge_index: Tensor) -> Bits:
        """Return the query words that each candidate and its neighbours contain together.

        Args:
            edge_index: Edges ``[2, E]`` among the candidates, in any order.

        Returns:
            Bits ``[M, W]``.
        """
        order = np.argsort(edge_index[1].numpy(), kind="stable")
        source, target = edge_index.numpy()[:, order]
        together = self.bits.copy()
        for edges in _blocks(len(source), BLOCK_BYTES // (8 * self.bits.shape[1])):
            block_target = target[edges]
            first = np.flatnonzero(first_of_equals(block_target))
            together[block_target[first]] |= np.bitwise_or.reduceat(self.bits[source[edges]], first, axis=0)
        return together

    def without_each(self, edge_index: Tensor) -> Tensor:
        """Return, for each edge, the share of the query that its target covers together with its other neighbours.

        Args:
            edge_index: Edges ``[2, E]`` among the candidates, sorted by target. Of a repeated edge, one copy is left
                out.

        Returns:
            Shares ``[E]``, float32.
        """
        source, target = edge_index.numpy()
        rows = self.bits[target]
        for start, stop in pairwise([*np.flatnonzero(first_of_equals(target)), len(target)]):
            neighbours = self.bits[source[start:stop]]
            rows[start + 1 : stop] |= np.bitwise_or.accumulate(neighbours, axis=0)[:-1]  # the earlier neighbours
            rows[start : stop - 1] |= np.bitwise_or.accumulate(neighbours[::-1], axis=0)[-2::-1]  # the later ones
        return self.sums(rows, self.graph[edge_index[1]], self.share)


class TextMatch:
    r"""Measure how much of a query a candidate covers alone and together with its neighbours.

    With the BM25 weight :math:`w(t) = \ln(1 + (N - n_t + 0.5) / (n_t + 0.5))` of a word :math:`t` that :math:`n_t` of
    :math:`N` passages contain, and :math:`c(T) = \sum_{t \in q \cap T} w(t) / \sum_{t \in q} w(t)`, the features are

    - ``query_coverage``: :math:`c` of the words of the passage;
    - ``title_coverage``: the weighted share of the words of its first sentence that the query contains;
    - ``neighbourhood_coverage``: :math:`c` of the words of the passage and all its neighbours together;
    - ``query_word_1`` to ``query_word_24``: :math:`c` of each of the query's rarest words that occur in the corpus,
      rarest first. They allow a model to compute what any set of passages covers together, even without edges.

    All features lie in [0, 1]. Only candidates count as neighbours. Without neighbours, the third feature equals the
    first.

    Source: this project, with the inverse document frequency of BM25.

    Args:
        texts: Texts or stems of the corpus, or the candidates of one query if there is no corpus.
        table: Table that numbers the words. If ``texts`` are :class:`TextWords`, the table that read them. If None, a
            new table is created.
        language: Language of the texts if a new table is created or ``texts`` are stems.

    Example:
        >>> match = TextMatch(["Solaris. A film by Tarkovsky.", "Tarkovsky. Born in Russia.", "Rome. A city."])
        >>> edges, ptr = torch.tensor([[0, 1], [1, 0]]), torch.tensor([0, 3])
        >>> match.score(["director of Solaris born in"], torch.arange(3), edges, ptr)
        tensor([[0.2427, 1.0000, 0.4854],
                [0.2427, 0.0000, 0.4854],
                [0.0000, 0.0000, 0.0000]])
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
        text_words = texts if isinstance(texts, TextWords) else self._table.read(texts)
        self.num_nodes, num_words = text_words.num_texts, self._table.num_stems
        keys, self._in_lead = distinct_keys(text_words.text_of_stem * num_words + text_words.stems, text_words.in_lead)
        node, self._word = np.divmod(keys, max(1, num_words))  # (node, word) pairs in ascending order
        self._ptr = np.searchsorted(node, np.arange(self.num_nodes + 1))
        self._texts_with = np.bincount(self._word, minlength=num_words)

    @classmethod
    def of(cls, graph: CorpusGraph) -> "TextMatch":
        """Return a matcher for the texts of a corpus. Stems that the corpus stores are reused.

        Args:
            graph: Corpus graph.
        """
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
        """Compute the features of the candidates.

        Args:
            query_texts: ``B`` queries, as texts or as words that the table has read.
            nodes: Indices of the texts of all candidates, ``[M]``, grouped by query.
            edge_index: Edges ``[2, E]`` among the candidates, numbered by their position in ``nodes``.
            ptr: Boundaries of the queries' candidates, ``[B + 1]``.
            with_words: Whether to compute the features of single words.

        Returns:
            Features ``[M, 3]`` named by ``MATCH_FEATURES``, or ``[M, 27]`` named by ``TEXT_MATCH_FEATURES`` if
            ``with_words`` is set. They are float32 and 0 for queries without words.

        Raises:
            UserError: If ``query_texts`` are words although the corpus stores stems.
        """
        matched = self.matched_words(query_texts, nodes, ptr)
        graph, share = matched.graph, matched.share
        title = matched.sums(matched.lead_bits, graph, matched.weight) / self._lead_weights(nodes)
        alone = matched.sums(matched.bits, graph, share)
        together = matched.sums(matched.together(edge_index), graph, share) if edge_index.numel() else alone
        features = torch.stack([alone, title.clamp(max=1.0), together], dim=1)
        return torch.cat([features, matched.heaviest(len(WORD_FEATURES))], dim=1) if with_words else features

    def matched_words(self, query_texts: Queries, nodes: Tensor, ptr: Tensor) -> MatchedWords:
        """Return the query words that each candidate contains.

        Args:
            query_texts: ``B`` queries, as texts or as words that the table has read.
            nodes: Indices of the texts of all candidates, ``[M]``, grouped by query.
            ptr: Boundaries of the queries' candidates, ``[B + 1]``.

        Raises:
            UserError: If ``query_texts`` are words although the corpus stores stems.
        """
        word = self._numbered(query_texts)
        weight = self._weights(word)
        total = weight.sum(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
        weight_in_corpus = weight.masked_fill(torch.from_numpy(word < 0), 0.0)
        graph = graph_of_nodes(ptr, len(nodes))
        row, entry = self._entries(nodes)
        query, column = np.nonzero(word >= 0)
        num_words = max(1, len(self._texts_with))
        query_keys = query * num_words + word[query, column]
        order = np.argsort(query_keys)
        query_keys, column = np.append(query_keys[order], -1), np.append(column[order], 0)  # never empty
        keys = graph.numpy()[row] * num_words + self._word[entry]
        slot = np.searchsorted(query_keys[:-1], keys)
        is_match = query_keys[slot] == keys
        row, slot, in_lead = row[is_match], column[slot[is_match]], self._in_lead[entry[is_match]]
        shape = (len(nodes), max(1, -(-word.shape[1] // 64)))
        bits, lead_bits = _bits(row, slot, shape), _bits(row[in_lead], slot[in_lead], shape)
        return MatchedWords(bits, lead_bits, weight_in_corpus, total, weight / total, graph)

    def _entries(self, nodes: Tensor) -> tuple[Integers, Integers]:
        """Return the words of nodes ``[M]``: for each word, the position of its node and the index of the word."""
        rows = nodes.numpy()
        if self._stems is not None and self._stems.rows is not None:
            rows = self._stems.rows[rows]
        return slots_of(self._ptr[rows], self._ptr[rows + 1])

    def _weights(self, word: Integers) -> Tensor:
        """Return the weights of the words with the given indices. Padding has weight 0."""
        weight_of_unknown = torch.log1p(torch.tensor(2 * self.num_nodes + 1.0))  # of a word that no passage contains
        weight = weight_of_unknown.expand(word.shape)
        if (word >= 0).any():
            num_texts = torch.from_numpy(self._texts_with[np.maximum(word, 0)]).double()
            weight_of_known = torch.log1p((self.num_nodes - num_texts + 0.5) / (num_texts + 0.5)).float()
            weight = torch.where(torch.from_numpy(word < 0), weight_of_unknown, weight_of_known)
        return weight.masked_fill(torch.from_numpy(word == PADDING), 0.0)

    def _lead_weights(self, nodes: Tensor) -> Tensor:
        """Return the sum of the word weights in the first sentence of each node, ``[M]``, added in ascending order."""
        row, entry = self._entries(nodes)
        in_lead = self._in_lead[entry]
        row, weight = row[in_lead], self._weights(self._word[entry[in_lead]])
        weight = weight[np.lexsort((weight.numpy(), row))]
        return _sums_of_rows(row, weight, len(nodes)).clamp(min=torch.finfo(torch.float32).tiny)

    def _numbered(self, query_texts: Queries) -> Integers:
        """Return the indices of each query's distinct words, ``[B, T]``.

        Words that no passage contains have the index -1, and padding has -2.
        """
        if self._stems is not None:
            if isinstance(query_texts, TextWords):
                raise UserError("`query_texts` must be strings if the corpus stores its stems, got TextWords")
            rank = self._stems.words.rank
            rows = [[rank(word) for word in dict.fromkeys(words(text, self._language))] for text in query_texts]
        else:
            query_words = query_texts if isinstance(query_texts, TextWords) else self._table.read(query_texts)
            ptr = np.searchsorted(query_words.text_of_stem, np.arange(query_words.num_texts + 1)).tolist()
            stems = query_words.stems.tolist()
            rows = [list(dict.fromkeys(stems[start:stop])) for start, stop in pairwise(ptr)]
        width = max(map(len, rows), default=0)
        padded = [row + [PADDING] * (width - len(row)) for row in rows]
        number = np.array(padded, dtype=np.int64).reshape(len(rows), width)
        occurs = (number >= 0) & (number < len(self._texts_with))
        occurs[occurs] = self._texts_with[number[occurs]] > 0
        return np.where(occurs | (number == PADDING), number, -1)


def distinct_keys(keys: Integers, marked: npt.NDArray[np.bool_]) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the distinct keys in ascending order, and whether any occurrence of each is marked.

    Args:
        keys: Non-negative keys ``[n]``.
        marked: Whether an occurrence is marked, ``[n]``.

    Returns:
        Distinct keys ``[m]`` and their marks ``[m]``.
    """
    both = np.sort(2 * keys + ~marked)  # marked occurrences come first
    both = both[first_of_equals(both >> 1)]
    return both >> 1, (both & 1) == 0


def _sums_of_rows(row: Integers, entries: Tensor, num_rows: int) -> Tensor:
    """Return the sums of the entries of each row, with rows ascending. Rows of equal length are summed together.

    The result equals ``Tensor.sum`` of each row to the last bit.
    """
    sums = torch.zeros(num_rows)
    length = np.bincount(row, minlength=num_rows)
    start = np.cumsum(length) - length
    for size in np.flatnonzero(np.bincount(length, minlength=1)[1:]).tolist():
        size += 1
        rows = np.flatnonzero(length == size)
        sums[rows] = entries[start[rows][:, None] + np.arange(size)].sum(1)
    return sums


def _bits(row: Integers, slot: Integers, shape: tuple[int, int]) -> Bits:
    """Return bit masks of shape ``shape`` in which bit ``slot`` of row ``row`` is set."""
    flat = np.zeros(shape[0] * shape[1], dtype="<u8")
    np.bitwise_or.at(flat, row * shape[1] + (slot >> 6), np.left_shift(np.uint64(1), (slot & 63).astype(np.uint64)))
    return flat.reshape(shape)


def _blocks(count: int, at_once: int) -> Iterator[slice]:
    return (slice(start, start + max(1, at_once)) for start in range(0, count, max(1, at_once)))
