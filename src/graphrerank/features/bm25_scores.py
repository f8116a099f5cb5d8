"""BM25 over the passages of one request, whose words are already numbered."""

import math

import numpy as np
import numpy.typing as npt

from graphrerank.features.word_table import TextWords, first_of_equals

Integers = npt.NDArray[np.int64]


def bm25_scores(words: TextWords, query: Integers, *, k1: float = 1.5, b: float = 0.75) -> npt.NDArray[np.float32]:
    """Score texts for one query. The scores are identical to those of :class:`~graphrerank.operators.bm25.BM25`.

    Formula, source and rounding are those of ``bm25s``, but only the words of the query are counted. Time and memory
    grow with the number of tokens of the texts.

    Args:
        words: Words of ``n`` texts.
        query: Token indices of the query, ``[Q]``, including repeated tokens, from the word table of the texts.
        k1: Saturation of the term frequency.
        b: Strength of the length normalisation, in [0, 1].

    Returns:
        Scores ``[n]``, float32.

    Example:
        >>> from graphrerank.features.word_table import words_of
        >>> words, table = words_of(["red apple", "green pear"])
        >>> bm25_scores(words, table.read(["green"]).tokens).argmax().item()
        1
    """
    scores = np.zeros(words.num_texts, dtype=np.float32)
    query_terms = np.unique(query)
    if not len(query_terms) or not len(words.tokens):
        return scores
    term = np.searchsorted(query_terms, words.tokens)
    term[term == len(query_terms)] = 0
    is_match = query_terms[term] == words.tokens
    key = np.sort(term[is_match] * words.num_texts + words.text_of_token[is_match])
    first = np.flatnonzero(first_of_equals(key))
    frequency = np.diff(first, append=len(key))
    term, text = np.divmod(key[first], words.num_texts)
    ptr = np.searchsorted(term, np.arange(len(query_terms) + 1))
    length = np.bincount(words.text_of_token, minlength=words.num_texts)
    norm = k1 * ((1 - b) + b * length / length.mean())
    impact = (rarity(np.diff(ptr), words.num_texts)[term] * (frequency / (norm[text] + frequency))).astype(np.float32)
    for index in np.searchsorted(query_terms, query).tolist():  # one by one, because the order affects float32 rounding
        postings = slice(ptr[index], ptr[index + 1])
        scores[text[postings]] += impact[postings]
    return scores


def rarity(holding: Integers, num_texts: int) -> npt.NDArray[np.float32]:
    r"""Return the inverse document frequency of words, with the formula of Lucene.

    .. math:: \ln\Bigl(1 + \frac{N - n_t + 0.5}{n_t + 0.5}\Bigr)

    Args:
        holding: Number :math:`n_t` of texts that contain each word, ``[T]``.
        num_texts: Number :math:`N` of texts.

    Returns:
        Weights ``[T]``, float32.
    """
    weights = [math.log(1 + (num_texts - count + 0.5) / (count + 0.5)) for count in holding.tolist()]
    return np.array(weights, dtype=np.float32)
