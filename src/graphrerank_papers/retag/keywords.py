"""Keyword expansion: words that lexical search adds to those of the question."""

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice, zip_longest
from typing import Protocol

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative
from graphrerank.graphs import Queries, top_k_by_node_order
from graphrerank.graphs.queries import TextEncoder
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt
from graphrerank.text import split_sentences
from graphrerank.text.languages import detect_language
from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.retag.index import ReTAGIndex
from graphrerank_papers.retag.language_model import generate_keywords
from graphrerank_papers.retag.topics import Topics

NO_TOPIC = "the whole collection"


class KeywordFinder(Protocol):
    """Anything that finds further words for lexical search."""

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """List the keywords of ``B`` queries, best first.

        ``graphs`` is ``[B, 1 + T]`` bool, the graphs in which each is searched (:func:`route_to_topics`).
        """


class SummarySentences:
    """The sentences of an index's summaries with their vectors and weighted words.

    Attributes:
        vectors: ``[S, d]`` unit vectors, on the CPU.
        keywords: ``W`` words.
        weights: ``[S, W]`` sparse; the BM25 inverse document frequency of each word of a sentence, over all sentences.
        language: Of the sentences.
    """

    def __init__(self, index: ReTAGIndex, encoder: TextEncoder) -> None:
        texts = list(index.sentences.texts)
        if not texts:  # a language model wrote the summaries
            split = (text[start:stop] for text in index.communities.texts for start, stop in split_sentences(text))
            texts = list(dict.fromkeys(split))
        column: dict[str, int] = {}
        self.language = detect_language(texts)
        rows = [[column.setdefault(word, len(column)) for word in find_keywords(text, self.language)] for text in texts]
        indices = np.asarray([word for row in rows for word in row], dtype=np.int64)
        num_texts = np.bincount(indices, minlength=len(column))
        idf = np.log1p((len(texts) - num_texts + 0.5) / (num_texts + 0.5))
        entries = (idf[indices], indices, np.cumsum([0, *map(len, rows)]))
        self.keywords = list(column)
        self.weights = sparse.csr_matrix(entries, shape=(len(texts), len(column)))
        self.vectors = encoder.encode(texts).cpu() if texts else torch.zeros(0, 0)


@dataclass(eq=False)
class ExtractiveKeywords:
    r"""Keywords from the terms of a question's topics and from the sentences nearest to it, without a language model.

    Terms of the topics come first, those of several topics alternating, then words by

    .. math:: w(t) = \mathrm{idf}(t) \sum_{s \ni t} \max(0, \cos(q, s))

    over the nearest sentences :math:`s` of the summaries. Words of the question itself are left out.

    Source: ReTAG, section 3.3, asks a language model (:class:`GeneratedKeywords`). The weight is that of pseudo-
    relevance feedback, Lavrenko and Croft, "Relevance-Based Language Models", 2001, with sentences as documents and
    cosines as probabilities.
    """

    sentences: SummarySentences
    topics: Topics
    _: KW_ONLY
    num_keywords: int = 10  # maximum of a question
    num_sentences: int = 20  # nearest ones
    num_terms: int = 2  # maximum of terms of topics among the keywords

    def __post_init__(self) -> None:
        check_counts(num_keywords=self.num_keywords, num_sentences=self.num_sentences)
        check_not_negative(num_terms=self.num_terms)

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of ``B`` queries with vectors; none for a blank query."""
        weights = self._weights(queries.encoded.cpu())
        keywords = []
        for row, (text, inside) in enumerate(zip(queries.texts, graphs[:, 1:].tolist(), strict=True)):
            known = set(find_keywords(text, self.sentences.language))
            topic_terms = [terms for terms, is_inside in zip(self.topics.terms, inside, strict=True) if is_inside]
            terms = islice((term for term in _alternate(topic_terms) if term not in known), self.num_terms)
            begin, end = weights.indptr[row : row + 2]
            words, weight = weights.indices[begin:end], weights.data[begin:end]
            ranked = (self.sentences.keywords[word] for word in words[np.lexsort((words, -weight))])
            unique = dict.fromkeys([*terms, *(word for word in ranked if word not in known)])
            keywords.append(list(unique)[: self.num_keywords] if text.strip() else [])
        return keywords

    def _weights(self, vectors: Tensor) -> sparse.csr_matrix:
        """Return the weights of the words of the nearest sentences, ``[B, W]``."""
        table = self.sentences.vectors
        if not len(table):
            return sparse.csr_matrix((len(vectors), 0))
        nodes, cosines = top_k_by_node_order(vectors @ table.T, min(self.num_sentences, len(table)))
        indptr = np.arange(0, nodes.numel() + 1, nodes.shape[1])
        entries = (cosines.clamp(min=0).flatten().numpy(), nodes.flatten().numpy(), indptr)
        near = sparse.csr_matrix(entries, shape=(len(vectors), len(table)))
        near.eliminate_zeros()  # dissimilar sentences contribute no keyword
        return near @ self.sentences.weights


@dataclass(eq=False)
class GeneratedKeywords:
    """Keywords by a language model that knows a short description of the collection and the question's topics."""

    model: ChatModel  # best wrapped in an `AnswerCache`
    topics: Topics
    _: KW_ONLY
    description: str
    num_keywords: int = 15  # maximum of a question
    prompt: Prompt | None = None  # see `generate_keywords`

    def find(self, queries: Queries, graphs: Tensor) -> list[list[str]]:
        """Return the keywords of ``B`` queries; none for a blank one, or without a usable answer."""
        described = [
            f"{topic} ({', '.join(terms)})" for topic, terms in zip(self.topics.names, self.topics.terms, strict=True)
        ]
        scopes = [
            "; ".join(text for text, is_inside in zip(described, inside, strict=True) if is_inside) or NO_TOPIC
            for inside in graphs[:, 1:].tolist()
        ]
        descriptions = [f"{self.description} Searched in: {scope}" for scope in scopes]
        return generate_keywords(
            self.model, queries.texts, descriptions, num_keywords=self.num_keywords, prompt=self.prompt
        )


def _alternate(lists: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the first of each list, then the second of each, and so on."""
    for terms in zip_longest(*lists):
        yield from (term for term in terms if term is not None)
