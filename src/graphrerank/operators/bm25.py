"""Lexical search by BM25."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import bm25s
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphrerank.features.bm25_scores import rarity
from graphrerank.graphs import CorpusGraph, Postings
from graphrerank.text.languages import ENGLISH, language_of


class LexicalIndex(Protocol):
    """Scores all texts of a corpus by the words that they share with a query."""

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score ``N`` texts for ``B`` queries: ``[B, N]`` float32, not negative; 0 if no word is shared."""


class BM25:
    """BM25 as in Lucene over an in-memory corpus, through ``bm25s``.

    Source: Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, Eq. (3.15); the
    ``lucene`` variant never scores below 0. Stop words are removed; words of other languages than English are stemmed.

    Args:
        texts: The corpus, ``N`` texts.
        k1: Saturation of term frequency.
        b: Length normalisation in [0, 1].
        language: Of the texts (:mod:`~graphrerank.text.languages`).
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75, language: str = ENGLISH) -> None:
        self.num_nodes, self._language = len(texts), language
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        tokens = _tokens(texts, language)
        self._is_empty = not any(tokens)
        if not self._is_empty:
            self._index.index(tokens, show_progress=False)

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score every node for every query: ``[B, N]`` float32, not negative; 0 if no word is shared.

        Example:
            >>> BM25(["red apple", "green pear", "red pear"]).score_all(["red"]).argmax(1)
            tensor([0])
        """
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

    Args:
        postings: The corpus's.
        k1: Saturation of term frequency.
        b: Length normalisation in [0, 1].
        language: In which the texts were read.
    """

    def __init__(self, postings: Postings, *, k1: float = 1.5, b: float = 0.75, language: str = ENGLISH) -> None:
        self._postings, self._k1, self._b, self._language = postings, k1, b, language
        self.num_nodes = len(postings.lengths)

    def score_all(self, query_texts: Sequence[str]) -> Tensor:
        """Score every node for every query: ``[B, N]`` float32; as :meth:`BM25.score_all`, 0 for removed ones."""
        scores = np.zeros((len(query_texts), self.num_nodes), dtype=np.float32)
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
        weight = rarity(np.array([len(texts)]), self._postings.num_texts)
        frequency = counts.astype(np.float64)
        impact = self._norm[texts]
        impact += frequency
        np.divide(frequency, impact, out=impact)
        impact *= weight
        return texts, impact.astype(np.float32)

    @cached_property
    def _norm(self) -> npt.NDArray[np.float64]:
        """``[N]``, what the length of each text adds to a frequency: the one thing kept in memory, 8 bytes a text."""
        mean_length = self._postings.num_tokens / self._postings.num_texts
        norm = self._k1 * ((1 - self._b) + self._b * self._postings.lengths / mean_length)
        return np.asarray(norm, dtype=np.float64)


def lexical_index(graph: CorpusGraph, *, k1: float = 1.5, b: float = 0.75) -> LexicalIndex:
    """Return BM25 over a corpus: from its postings if its words were read before, else from its texts."""
    words, language = graph.passages.words, graph.passages.language
    if words is not None:
        return PostingsBM25(words.tokens, k1=k1, b=b, language=language)
    return BM25(graph.texts, k1=k1, b=b, language=language)


def _tokens(texts: Sequence[str], language: str) -> list[list[str]]:
    if language != ENGLISH:
        return [language_of(language).tokens(text) for text in texts]
    tokens: list[list[str]] = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return tokens
