"""The texts of one query and its candidates where there is no corpus, and what follows from their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.text_match import TextMatch
from graphrerank.features.word_table import TextWords, WordTable, words_of
from graphrerank.text.languages import AUTO, detect_language

DETECTED_CHARS = 4000  # of the passages, by which their language is detected


@dataclass(frozen=True, eq=False)
class CandidateTexts:
    """One query and its passages. Words are read once, when a feature first needs them.

    How rare a word is follows from the passages, because there is no corpus to count it in.

    Attributes:
        query: The query's text.
        passages: ``n`` texts.
        language: Name of the language in which words are matched (:mod:`~graphrerank.text.languages`), or ``auto`` for
            that of the passages, which is detected when words are first read.

    Example:
        >>> texts = CandidateTexts("born in Russia", ["Solaris. A film.", "Tarkovsky. Born in Russia."])
        >>> texts.bm25()
        tensor([0., 1.])
    """

    query: str
    passages: Sequence[str]
    language: str = AUTO

    @cached_property
    def _words_and_table(self) -> tuple[TextWords, WordTable]:
        return words_of(self.passages, language=matched_language(self.passages, self.language))

    @cached_property
    def _query_words(self) -> TextWords:
        return self._words_and_table[1].read([self.query])

    @cached_property
    def text_match(self) -> TextMatch:
        """Match of a query's words with the passages."""
        words, table = self._words_and_table
        return TextMatch(words, table=table)

    def bm25(self) -> Tensor:
        """Return each passage's BM25 score for the query, divided by the largest: ``[n]`` float32."""
        scores = torch.from_numpy(bm25_scores(self._words_and_table[0], self._query_words.tokens))
        return scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)

    def match(self, edge_index: Tensor, *, with_words: bool) -> Tensor:
        """Return the columns of :class:`~graphrerank.features.text_match.TextMatch`.

        Args:
            edge_index: ``[2, M]`` int64 edges (source, target) among the passages, in any order and repeated or not.
            with_words: Whether the columns of single words are computed too.

        Returns:
            ``[n, 3]`` float32, or ``[n, 27]`` with words.
        """
        query = self._query_words
        nodes, ptr = torch.arange(len(self.passages)), torch.tensor([0, len(self.passages)])
        return self.text_match.score(query, nodes, edge_index, ptr, with_words=with_words)


def matched_language(passages: Sequence[str], language: str) -> str:
    """Return the name of the language in which the words of some passages are matched.

    Args:
        passages: Texts.
        language: A name, or ``auto`` to detect the language by the stop words of the passages.

    Returns:
        The name. English if the language cannot be detected with certainty.
    """
    return detect_language(passages, max_chars=DETECTED_CHARS) if language == AUTO else language
