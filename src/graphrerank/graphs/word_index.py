"""The words of a corpus, read once: what BM25 and the matching of words look up instead of texts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from graphrerank.graphs.packed_strings import PackedStrings

Integers = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Postings:
    """Which of ``N`` texts hold each of ``V`` tokens of BM25, and how often.

    Attributes:
        words: ``V`` tokens, ascending by their bytes.
        ptr: ``[V + 1]`` int64; token ``t`` is held by ``texts[ptr[t]:ptr[t + 1]]``.
        texts: ``[P]`` int32, ascending within a token.
        counts: ``[P]`` int32, how often the text holds it.
        lengths: ``[N]`` int32, tokens of each text, repeats included.
        num_tokens: Sum of the lengths.
    """

    words: PackedStrings
    ptr: Integers
    texts: Integers
    counts: Integers
    lengths: Integers
    num_tokens: int


@dataclass(frozen=True, eq=False)
class TextStems:
    """The different stems of each of ``N`` texts, of ``V`` in all, with their weights.

    Attributes:
        words: ``V`` stems, ascending by their bytes.
        ptr: ``[N + 1]`` int64; text ``i`` holds ``stems[ptr[i]:ptr[i + 1]]``.
        stems: ``[P]`` int32, ascending within a text.
        in_lead: ``[P]`` bool, whether the stem stands in the text's lead.
        weight: ``[V]`` float32, of each stem.
        lead_weight: ``[N]`` float32, of each text's lead, positive.
    """

    words: PackedStrings
    ptr: Integers
    stems: Integers
    in_lead: npt.NDArray[np.bool_]
    weight: Tensor
    lead_weight: Tensor


@dataclass(frozen=True, eq=False)
class WordIndex:
    """The words of a corpus's texts: ``tokens`` for BM25, ``stems`` for what a passage covers of a query."""

    tokens: Postings
    stems: TextStems
