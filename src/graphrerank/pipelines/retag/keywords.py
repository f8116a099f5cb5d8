"""Keyword expansion: words that lexical search is asked beside those of the question."""

from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from typing import Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.graphs import Queries, top_k_by_node_order
from graphrerank.indexes.retag import ReTAGIndex, Topics
from graphrerank.language_models import LanguageModelKeywords
from graphrerank.operators import TextEncoder
from graphrerank.text import find_keywords, split_sentences

EVERYTHING = "the whole collection"


class KeywordFinder(Protocol):
    """Anything that tells what else lexical search should be asked."""

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """List the keywords of ``B`` queries, best first.

        Args:
            queries: The queries.
            graphs: ``[B, 1 + T]`` bool, the graphs that each is searched in (:func:`route_to_topics`).
        """


class SummarySentences:
    """The sentences of an index's summaries with their vectors and words: made once, read with many settings.

    Args:
        index: The index.
        encoder: The encoder that made it.

    Attributes:
        vectors: ``[S, d]`` unit vectors, on the CPU.
        keywords: ``W`` words.
        weights: ``[S, W]`` sparse; a sentence's row holds of each of its words how rare it is among the sentences, as
            BM25 weighs it.
    """

    def __init__(self, index: ReTAGIndex, encoder: TextEncoder) -> None:
        texts = list(index.sentences.texts)
        if not texts:  # a language model wrote the summaries
            written = (text[start:stop] for text in index.communities.texts for start, stop in split_sentences(text))
            texts = list(dict.fromkeys(written))
        number: dict[str, int] = {}
        rows = [[number.setdefault(word, len(number)) for word in find_keywords(text)] for text in texts]
        indices = np.asarray([word for row in rows for word in row], dtype=np.int64)
        holders = np.bincount(indices, minlength=len(number))
        rarity = np.log1p((len(texts) - holders + 0.5) / (holders + 0.5))
        entries = (rarity[indices], indices, np.cumsum([0, *map(len, rows)]))
        self.keywords = list(number)
        self.weights = sparse.csr_matrix(entries, shape=(len(texts), len(number)))
        self.vectors = encoder.encode(texts).cpu() if texts else torch.zeros(0, 0)


class ExtractiveKeywords:
    r"""Keywords from the terms of a question's topics and from the sentences nearest to it; no language model.

    First come terms of the topics, those of several topics in turns, then words by

    .. math:: w(t) = \mathrm{idf}(t) \sum_{s \ni t} \max(0, \cos(q, s))

    over the nearest sentences :math:`s` of the summaries. Words of the question itself are left out.

    Source: ReTAG, section 3.3, asks a language model (:class:`WrittenKeywords`). The weight is that of pseudo-relevance
    feedback, Lavrenko and Croft, "Relevance-Based Language Models", 2001, with sentences in the place of documents and
    cosines in that of probabilities.

    Args:
        sentences: Sentences of the summaries.
        topics: The topics.
        num_keywords: Most keywords of a question, at least 1.
        num_sentences: Sentences that are looked at, at least 1.
        num_terms: Most terms of topics among the keywords.

    Raises:
        ValueError: If a number is out of range.
    """

    def __init__(
        self,
        sentences: SummarySentences,
        topics: Topics,
        *,
        num_keywords: int = 10,
        num_sentences: int = 20,
        num_terms: int = 2,
    ) -> None:
        if num_keywords < 1 or num_sentences < 1 or num_terms < 0:
            raise ValueError(
                "`num_keywords` and `num_sentences` must be positive and `num_terms` not negative, got "
                f"{num_keywords}, {num_sentences} and {num_terms}"
            )
        self.num_keywords = num_keywords
        self.num_sentences = num_sentences
        self.num_terms = num_terms
        self._sentences = sentences
        self._topics = topics

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """List the keywords of ``B`` queries with vectors; none for a query of white space."""
        weights = self._weights(queries.encoded.cpu())
        found = []
        for row, (text, inside) in enumerate(zip(queries.texts, graphs[:, 1:].tolist(), strict=True)):
            known = set(find_keywords(text))
            own = [terms for terms, is_inside in zip(self._topics.terms, inside, strict=True) if is_inside]
            terms = islice((term for term in _in_turns(own) if term not in known), self.num_terms)
            begin, end = weights.indptr[row : row + 2]
            words, weight = weights.indices[begin:end], weights.data[begin:end]
            listed = (self._sentences.keywords[word] for word in words[np.lexsort((words, -weight))])
            keywords = dict.fromkeys([*terms, *(word for word in listed if word not in known)])
            found.append(list(keywords)[: self.num_keywords] if text.strip() else [])
        return found

    def _weights(self, vectors: Tensor) -> sparse.csr_matrix:
        """Weigh the words of the nearest sentences, ``[B, W]``."""
        table = self._sentences.vectors
        if not len(table):
            return sparse.csr_matrix((len(vectors), 0))
        nodes, cosines = top_k_by_node_order(vectors @ table.T, min(self.num_sentences, len(table)))
        indptr = np.arange(0, nodes.numel() + 1, nodes.shape[1])
        entries = (cosines.clamp(min=0).flatten().numpy(), nodes.flatten().numpy(), indptr)
        near = sparse.csr_matrix(entries, shape=(len(vectors), len(table)))
        near.eliminate_zeros()  # what is not alike gives no keyword
        return near @ self._sentences.weights


class WrittenKeywords:
    """Keywords by a language model, which is told what the collection and a question's topics are about.

    Args:
        writer: Asks the model.
        topics: The topics.
        description: What the collection is about, a sentence or two.
    """

    def __init__(self, writer: LanguageModelKeywords, topics: Topics, *, description: str) -> None:
        self._writer = writer
        self._topics = topics
        self._description = description

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """List the keywords of ``B`` queries; none for one of white space, or without a usable answer."""
        described = [
            f"{topic} ({', '.join(terms)})" for topic, terms in zip(self._topics.names, self._topics.terms, strict=True)
        ]
        parts = [
            "; ".join(text for text, is_inside in zip(described, inside, strict=True) if is_inside) or EVERYTHING
            for inside in graphs[:, 1:].tolist()
        ]
        return self._writer.find(queries.texts, [f"{self._description} Searched in: {part}" for part in parts])


def _in_turns(lists: Sequence[Sequence[str]]) -> Iterator[str]:
    """Give the first of each list, then the second of each, and so on."""
    for together in zip_longest(*lists):
        yield from (term for term in together if term is not None)
