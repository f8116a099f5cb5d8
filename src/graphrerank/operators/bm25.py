"""Lexical search by BM25."""

from collections.abc import Sequence

import bm25s
import numpy as np
import torch
from torch import Tensor


class BM25:
    """BM25 as in Lucene over an in-memory corpus, through ``bm25s``.

    Source: Robertson and Zaragoza, *The Probabilistic Relevance Framework: BM25 and Beyond*, 2009, Eq. (3.15); the
    ``lucene`` variant never scores below 0. English stop words are removed; words are not stemmed.

    Args:
        texts: The corpus, ``N`` texts.
        k1: Saturation of term frequency.
        b: Length normalisation in [0, 1].
    """

    def __init__(self, texts: Sequence[str], *, k1: float = 1.5, b: float = 0.75) -> None:
        self.num_nodes = len(texts)
        self._index = bm25s.BM25(k1=k1, b=b, method="lucene")
        tokens = bm25s.tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
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
            tokens = bm25s.tokenize(list(query_texts), stopwords="en", return_ids=False, show_progress=False)
            for row, words in zip(scores, tokens, strict=True):
                known = [word for word in words if word in self._index.vocab_dict]
                if known:
                    row[:] = self._index.get_scores(known)
        return torch.from_numpy(scores)
