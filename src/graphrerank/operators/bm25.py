"""Lexical search by BM25."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import bm25s
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking, Retriever, top_k_by_node_order
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.corpus import CorpusGraph, Postings
from graphrerank.features.bm25_scores import rarity
from graphrerank.text.characters import matched_form
from graphrerank.text.languages import ENGLISH, language_of
from graphrerank.utils.checks import UserError, check_counts

BLOCK_SCORES = 1 << 25  # scores held at once: 128 MiB of float32 per term


class BM25:
    """BM25 as in Lucene over an in-memory corpus, through ``bm25s``.

    Source: Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, Eq. (3.15), with the
    saturation ``k1`` of term frequency and the length normalisation ``b`` in [0, 1]; the ``lucene`` variant never
    scores below 0. Stop words are removed; words of other languages than English are stemmed.

    Example:
        >>> BM25(["red apple", "green pear", "red pear"]).score_all(["red"]).argmax(1)
        tensor([0])
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75, language: str = ENGLISH) -> None:
        self.num_nodes, self._language = len(texts), language
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        tokens = _tokens(texts, language)
        self._is_empty = not any(tokens)
        if not self._is_empty:
            self._index.index(tokens, show_progress=False)

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score ``N`` texts for ``B`` queries: ``[B, N]`` float32, not negative; 0 if no word is shared."""
        scores = np.zeros((len(query_texts), self.num_nodes), dtype=np.float32)
        if not self._is_empty:
            for row, words in zip(scores, _tokens(query_texts, self._language), strict=True):
                known = [word for word in words if word in self._index.vocab_dict]
                if known:
                    row[:] = self._index.get_scores(known)
        return torch.from_numpy(scores)


class PostingsBM25:
    """:class:`BM25` over postings, which may lie on disk: the same scores to the last bit.

    Time grows with the number of texts that hold a word of the query, and with the number of texts by the zeros alone.
    """

    def __init__(self, postings: Postings, *, k1: float, b: float, language: str) -> None:
        self._postings, self._k1, self._b, self._language = postings, k1, b, language

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score as :meth:`BM25.score_all`; 0 for removed texts."""
        scores = np.zeros((len(query_texts), len(self._postings.lengths)), dtype=np.float32)
        for row, words in zip(scores, _tokens(query_texts, self._language), strict=True):
            held = {word: self._impact(word) for word in dict.fromkeys(words)}
            for word in words:  # one after the other, which is the order in which float32 is rounded
                texts, impact = held[word]
                np.add.at(row, texts, impact)  # each text once
        return torch.from_numpy(scores)

    def _impact(self, word: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
        """Return the texts that hold a word, ``[P]``, and what it adds to their scores, ``[P]``."""
        held, counts = self._postings.held(word)
        texts = held.astype(np.intp)  # once, as every look-up would convert them
        if not len(texts):
            return texts, np.zeros(0, dtype=np.float32)
        counted = self._postings.whole or self._postings
        holding = len(texts) if counted is self._postings else len(counted.held(word)[0])
        weight = rarity(np.array([holding]), counted.num_texts)
        frequency = counts.astype(np.float64)
        impact = self._norm[texts]
        impact += frequency
        np.divide(frequency, impact, out=impact)
        impact *= weight
        return texts, impact.astype(np.float32)

    @cached_property
    def _norm(self) -> npt.NDArray[np.float64]:
        """``[N]``, what the length of each text adds to a frequency: the one thing kept in memory, 8 bytes a text."""
        counted = self._postings.whole or self._postings
        mean_length = counted.num_tokens / counted.num_texts
        norm = self._k1 * ((1 - self._b) + self._b * self._postings.lengths / mean_length)
        return np.asarray(norm, dtype=np.float64)


LexicalIndex = BM25 | PostingsBM25


def lexical_index(graph: CorpusGraph, *, k1: float = 1.5, b: float = 0.75) -> LexicalIndex:
    """Return BM25 over a corpus: from its postings if its words were read before, else from its texts."""
    if not graph.num_nodes:
        raise UserError("`graph` must hold a passage to search in, got a corpus without passages")
    words, language = graph.passages.words, graph.passages.language
    if words is not None:
        return PostingsBM25(words.tokens, k1=k1, b=b, language=language)
    return BM25(graph.texts, k1=k1, b=b, language=language)


def lexical_scores(bm25: LexicalIndex, query_texts: Sequence[str]) -> Tensor:
    """Score the whole corpus by BM25, divided by each query's maximum: ``[b, N]`` in [0, 1]."""
    scores = bm25.score_all(query_texts)
    return scores / scores.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


def _tokens(texts: Sequence[str], language: str) -> list[list[str]]:
    if language != ENGLISH:
        return [language_of(language).tokens(text) for text in texts]
    plain = [matched_form(text) for text in texts]
    tokens: list[list[str]] = bm25s.tokenize(plain, stopwords="en", return_ids=False, show_progress=False)
    return tokens


class BM25Retriever(Retriever):
    """Rank the corpus by BM25, divided by the query's maximum over the corpus; no vectors are read.

    Nodes that share no word with the query have score 0 and follow in node order, so every query has ``top_k``
    candidates, even an empty one. The corpus is indexed at the first query; ``k1`` and ``b`` are as of :class:`BM25`.
    """

    feature_names: tuple[str, ...] = (BASE_SCORE, "bm25_score")

    def __init__(self, graph: CorpusGraph, *, top_k: int = 100, k1: float = 1.5, b: float = 0.75) -> None:
        check_counts(top_k=top_k)
        self.top_k, self.k1, self.b = top_k, k1, b
        self._graph = graph

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, as no vectors are read."""
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus for each of ``B`` texts: ``[B, top_k]``, scores in [0, 1], ``features [B, top_k, 2]``."""
        rankings = []
        for block in queries.blocks(max(1, BLOCK_SCORES // max(1, self._graph.num_nodes))):
            table = self._graph.passages.mask_removed(lexical_scores(self._bm25, block.texts))
            nodes, scores = top_k_by_node_order(table, self.top_k)
            features = scores.masked_fill(nodes < 0, 0.0).unsqueeze(-1).expand(-1, -1, 2)
            rankings.append(Ranking(nodes, scores, features))
            self._graph.pages.release()
        return Ranking.concatenate(rankings)

    @cached_property
    def _bm25(self) -> LexicalIndex:
        return lexical_index(self._graph, k1=self.k1, b=self.b)
