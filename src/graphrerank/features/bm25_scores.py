"""BM25 among the few passages of one request, whose words are numbers already."""

import math

import numpy as np
import numpy.typing as npt

from graphrerank.features.word_table import TextWords, first_of_equals

Integers = npt.NDArray[np.int64]


def bm25_scores(words: TextWords, query: Integers, *, k1: float = 1.5, b: float = 0.75) -> npt.NDArray[np.float32]:
    """Score ``n`` texts for one query, ``[n]``: to the last bit as :class:`~graphrerank.operators.bm25.BM25`.

    The formula, its source and the steps' precision are those of ``bm25s``, but only the query's words are counted:
    time and memory grow with the number of tokens. ``query [Q]`` are the numbers of its tokens, repeats included, by
    the table that read the texts.
    """
    scores = np.zeros(words.num_texts, dtype=np.float32)
    asked = np.unique(query)
    if not len(asked) or not len(words.tokens):
        return scores
    term = np.searchsorted(asked, words.tokens)
    term[term == len(asked)] = 0
    is_asked = asked[term] == words.tokens
    key = np.sort(term[is_asked] * words.num_texts + words.text_of_token[is_asked])
    first = np.flatnonzero(first_of_equals(key))
    frequency = np.diff(first, append=len(key))
    term, text = np.divmod(key[first], words.num_texts)
    ptr = np.searchsorted(term, np.arange(len(asked) + 1))
    length = np.bincount(words.text_of_token, minlength=words.num_texts)
    norm = k1 * ((1 - b) + b * length / length.mean())
    impact = (rarity(np.diff(ptr), words.num_texts)[term] * (frequency / (norm[text] + frequency))).astype(np.float32)
    # one after the other, which is the order in which float32 is rounded
    for place in np.searchsorted(asked, query).tolist():
        held = slice(ptr[place], ptr[place + 1])
        scores[text[held]] += impact[held]
    return scores


def rarity(holding: Integers, num_texts: int) -> npt.NDArray[np.float32]:
    """Return Lucene's inverse document frequency of words that ``holding`` texts hold, ``[T]``."""
    weights = [math.log(1 + (num_texts - count + 0.5) / (count + 0.5)) for count in holding.tolist()]
    return np.array(weights, dtype=np.float32)
