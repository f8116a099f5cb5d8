"""Lexical search with BM25."""

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

#: Largest number of scores in memory at once. It bounds a block of queries to 128 MiB of float32.
BLOCK_SCORES = 1 << 25


class BM25:
    r"""BM25 index of texts in memory, with the formula of Lucene.

    .. math:: s(q, d) = \sum_{t \in q} \ln\Bigl(1 + \frac{N - n_t + 0.5}{n_t + 0.5}\Bigr)
        \frac{f_{t,d}}{f_{t,d} + k_1 (1 - b + b\,|d| / \overline{|d|})}

    with :math:`f_{t,d}` the number of occurrences of term :math:`t` in text :math:`d`, and :math:`n_t` the number of
    the :math:`N` texts that contain the term.

    Source: Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, Eq. (3.15), in the
    ``lucene`` variant of the ``bm25s`` package, whose scores are never negative. Stop words are removed. Words are
    stemmed in languages other than English.

    Args:
        texts: Texts to index.
        k1: Saturation of the term frequency. With 0, only the presence of a term counts.
        b: Strength of the length normalisation, in [0, 1].
        language: Language of the texts, one of ``graphrerank.text.languages.LANGUAGES``.

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
        """Score all texts for each query.

        Args:
            query_texts: ``B`` queries.

        Returns:
            Non-negative scores ``[B, N]``, float32. A text that shares no word with the query scores 0.
        """
        scores = np.zeros((len(query_texts), self.num_nodes), dtype=np.float32)
        if not self._is_empty:
            for row, words in zip(scores, _tokens(query_texts, self._language), strict=True):
                known = [word for word in words if word in self._index.vocab_dict]
                if known:
                    row[:] = self._index.get_scores(known)
        return torch.from_numpy(scores)


class PostingsBM25:
    """BM25 over postings, which may be stored on disk. The scores are identical to those of :class:`BM25`.

    The time of a query depends mainly on the number of texts that contain one of its words.

    Args:
        postings: Postings of the corpus.
        k1: Saturation of the term frequency.
        b: Strength of the length normalisation, in [0, 1].
        language: Language of the texts, one of ``graphrerank.text.languages.LANGUAGES``.
    """

    def __init__(self, postings: Postings, *, k1: float, b: float, language: str) -> None:
        self._postings, self._k1, self._b, self._language = postings, k1, b, language

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score all texts for each query.

        Args:
            query_texts: ``B`` queries.

        Returns:
            Scores ``[B, N]``, identical to those of :meth:`BM25.score_all`. Removed texts score 0.
        """
        scores = np.zeros((len(query_texts), len(self._postings.lengths)), dtype=np.float32)
        for row, words in zip(scores, _tokens(query_texts, self._language), strict=True):
            impacts = {word: self._impact(word) for word in dict.fromkeys(words)}
            for word in words:  # one by one, because the order of additions affects float32 rounding
                texts, impact = impacts[word]
                np.add.at(row, texts, impact)
        return torch.from_numpy(scores)

    def _impact(self, word: str) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float32]]:
        """Return the texts that contain a word, ``[P]``, and the score that it adds to each of them, ``[P]``."""
        held, counts = self._postings.lookup(word)
        texts = held.astype(np.intp)  # convert once instead of in every look-up
        if not len(texts):
            return texts, np.zeros(0, dtype=np.float32)
        counted = self._postings.whole or self._postings
        holding = len(texts) if counted is self._postings else len(counted.lookup(word)[0])
        weight = rarity(np.array([holding]), counted.num_texts)
        frequency = counts.astype(np.float64)
        impact = self._norm[texts]
        impact += frequency
        np.divide(frequency, impact, out=impact)
        impact *= weight
        return texts, impact.astype(np.float32)

    @cached_property
    def _norm(self) -> npt.NDArray[np.float64]:
        """Length normalisation of each text, ``[N]``. Takes 8 bytes of memory per text."""
        counted = self._postings.whole or self._postings
        mean_length = counted.num_tokens / counted.num_texts
        norm = self._k1 * ((1 - self._b) + self._b * self._postings.lengths / mean_length)
        return np.asarray(norm, dtype=np.float64)


LexicalIndex = BM25 | PostingsBM25


def lexical_index(graph: CorpusGraph, *, k1: float = 1.5, b: float = 0.75) -> LexicalIndex:
    """Return a BM25 index of a corpus.

    The index reuses the postings of the corpus if it has been prepared with them. Otherwise the texts are indexed in
    memory.

    Args:
        graph: Corpus to search.
        k1: Saturation of the term frequency.
        b: Strength of the length normalisation, in [0, 1].

    Returns:
        Index with one score per node.

    Raises:
        UserError: If the corpus has no passages.
    """
    if not graph.num_nodes:
        raise UserError("`graph` must contain at least one passage, got an empty corpus")
    words, language = graph.passages.words, graph.passages.language
    if words is not None:
        return PostingsBM25(words.tokens, k1=k1, b=b, language=language)
    return BM25(graph.texts, k1=k1, b=b, language=language)


def lexical_scores(bm25: LexicalIndex, query_texts: Sequence[str]) -> Tensor:
    """Score the whole corpus with BM25, divided by the maximum of each query.

    Args:
        bm25: Index of the corpus.
        query_texts: ``B`` queries.

    Returns:
        Scores ``[B, N]`` in [0, 1].
    """
    scores = bm25.score_all(query_texts)
    return scores / scores.amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)


def _tokens(texts: Sequence[str], language: str) -> list[list[str]]:
    if language != ENGLISH:
        return [language_of(language).tokens(text) for text in texts]
    plain = [matched_form(text) for text in texts]
    tokens: list[list[str]] = bm25s.tokenize(plain, stopwords="en", return_ids=False, show_progress=False)
    return tokens


class BM25Retriever(Retriever):
    """Rank the corpus by BM25, without vectors.

    The score is divided by the query's maximum over the corpus, so it lies in [0, 1]. Nodes that share no word with the
    query score 0 and follow in node order. Every query therefore has ``top_k`` candidates, even an empty one. The
    corpus is indexed at the first query.

    Args:
        graph: Corpus to search.
        top_k: Number of candidates per query.
        k1: Saturation of the term frequency.
        b: Strength of the length normalisation, in [0, 1].

    Example:
        >>> graph = CorpusGraph.from_edges(["a", "b"], ["red apple", "green pear"], torch.zeros(0, 2).long())
        >>> BM25Retriever(graph, top_k=2).retrieve(Queries(["q1"], ["pear"])).nodes
        tensor([[1, 0]])
    """

    feature_names: tuple[str, ...] = (BASE_SCORE, "bm25_score")

    def __init__(self, graph: CorpusGraph, *, top_k: int = 100, k1: float = 1.5, b: float = 0.75) -> None:
        check_counts(top_k=top_k)
        self.top_k, self.k1, self.b = top_k, k1, b
        self._graph = graph

    @staticmethod
    def needs_vectors(**_: Any) -> bool:
        """Return False, because BM25 does not use vectors."""
        return False

    def retrieve(self, queries: Queries) -> Ranking:
        """Rank the corpus by BM25.

        Args:
            queries: ``B`` queries. Their vectors are ignored.

        Returns:
            Ranking ``[B, top_k]`` with scores in [0, 1] and ``features [B, top_k, 2]``, which both equal the score.
        """
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
