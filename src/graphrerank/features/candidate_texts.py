"""Texts of a query and its candidates without a corpus, and the features that follow from their words."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.text_match import TextMatch
from graphrerank.features.word_table import TextWords, WordTable, words_of
from graphrerank.text.languages import AUTO, detect_language

#: Number of characters of the passages from which their language is detected.
DETECTED_CHARS = 4000


@dataclass(frozen=True, eq=False)
class CandidateTexts:
    """Query and its passages. The texts are split into words when a feature first needs them.

    Word frequencies are counted in the passages, because there is no corpus.

    Attributes:
        query: Text of the query.
        passages: Texts of ``n`` passages.
        language: Language of the texts (see :mod:`~graphrerank.text.languages`), or ``auto`` to detect it from the
            passages.

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
        """Text-match features over the passages."""
        words, table = self._words_and_table
        return TextMatch(words, table=table)

    def bm25(self) -> Tensor:
        """Return the BM25 scores of the passages, divided by the largest score: ``[n]`` float32."""
        scores = torch.from_numpy(bm25_scores(self._words_and_table[0], self._query_words.tokens))
        return scores / scores.amax().clamp(min=torch.finfo(torch.float32).tiny)

    def match(self, edge_index: Tensor, *, with_words: bool) -> Tensor:
        """Compute the text-match features of the passages. See :class:`~graphrerank.features.text_match.TextMatch`.

        Args:
            edge_index: Edges ``[2, M]`` among the passages, int64, from source to target, in any order and possibly
                repeated.
            with_words: Whether to compute the features of single words.

        Returns:
            Features ``[n, 3]``, or ``[n, 27]`` if ``with_words`` is set, float32.
        """
        query = self._query_words
        nodes, ptr = torch.arange(len(self.passages)), torch.tensor([0, len(self.passages)])
        return self.text_match.score(query, nodes, edge_index, ptr, with_words=with_words)


def matched_language(passages: Sequence[str], language: str) -> str:
    """Return the language in which the words of passages are matched.

    Args:
        passages: Texts of the passages.
        language: Name of a language, or ``auto`` to detect it from the stop words of the passages.

    Returns:
        Name of the language. English if it cannot be detected with certainty.
    """
    return detect_language(passages, max_chars=DETECTED_CHARS) if language == AUTO else language
