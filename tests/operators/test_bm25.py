import math
import re
from collections import Counter

import pytest
import torch
from bm25s.stopwords import STOPWORDS_EN

from graphrerank.operators.bm25 import BM25, BM25Retriever
from tests.operators.corpora import corpus_of, queries_of

TEXTS = [
    "The quick brown fox jumps over the lazy dog",
    "A quick fox, a brown fox and another fox",
    "Dogs sleep; the dog sleeps.",
    "Credential dumping from LSASS memory",
    "",
    "The of and",  # stop words alone
    "Fox fox FOX",
]
QUERIES = ["brown fox", "dog", "lsass memory dump", "the of", "", "zebra", "fox fox zebra"]


def words(text: str) -> list[str]:
    return [word for word in re.findall(r"(?u)\b\w\w+\b", text.lower()) if word not in STOPWORDS_EN]


def naive_bm25(query: str, texts: list[str], k1: float, b: float) -> list[float]:
    """Lucene's BM25: ``ln(1 + (N - n + 1/2) / (n + 1/2)) * f / (f + k1 (1 - b + b * length / mean length))``."""
    documents = [words(text) for text in texts]
    mean_length = sum(map(len, documents)) / len(documents)
    scores = []
    for document in documents:
        frequency = Counter(document)
        score = 0.0
        for word in words(query):
            holding = sum(word in other for other in documents)
            idf = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
            saturation = frequency[word] + k1 * (1 - b + b * len(document) / mean_length)
            score += idf * frequency[word] / saturation if frequency[word] else 0.0
        scores.append(score)
    return scores


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (1.2, 0.0), (2.0, 1.0)])
def test_against_naive_lucene_formula(k1: float, b: float) -> None:
    found = BM25(TEXTS, k1=k1, b=b).score_all(QUERIES)
    expected = torch.tensor([naive_bm25(query, TEXTS, k1, b) for query in QUERIES])
    torch.testing.assert_close(found, expected)
    assert found.dtype == torch.float32
    assert (expected > 0).sum() > 8


@pytest.mark.parametrize("texts", [[], ["", ""], ["the of", "and"]], ids=["no texts", "empty", "stop words"])
def test_corpus_without_words_scores_zero(texts: list[str]) -> None:
    assert BM25(texts).score_all(QUERIES).tolist() == [[0.0] * len(texts)] * len(QUERIES)


def test_against_sorting_bm25() -> None:
    found = BM25Retriever(corpus_of(TEXTS), top_k=4, k1=1.2, b=0.5).retrieve(queries_of(QUERIES))
    for row, scores in enumerate(BM25(TEXTS, k1=1.2, b=0.5).score_all(QUERIES).tolist()):
        best = max(*scores, 1e-9)
        order = sorted(range(7), key=lambda node: (-scores[node], node))[:4]
        assert found.nodes[row].tolist() == order
        torch.testing.assert_close(found.scores[row], torch.tensor([scores[node] / best for node in order]))
    assert torch.equal(found.features, found.scores[..., None].expand(-1, -1, 2))
