import random

import pytest
import torch

from graphrerank.features.bm25_scores import bm25_scores
from graphrerank.features.word_table import WordTable
from graphrerank.operators.bm25 import BM25


def scores_of(texts: list[str], query: str, **settings: float) -> torch.Tensor:
    table = WordTable()
    read = table.read(texts)
    return torch.from_numpy(bm25_scores(read, table.read([query]).tokens, **settings))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("settings", [{}, {"k1": 0.9, "b": 0.4}, {"k1": 2.0, "b": 1.0}])
def test_against_bm25s_to_the_last_bit(seed: int, settings: dict[str, float]) -> None:
    rng = random.Random(seed)
    vocabulary = [f"w{number}" for number in range(40)] + ["the", "of", "a", "ÉLAN", "Σοφία"]
    for _ in range(60):
        texts = [" ".join(rng.choices(vocabulary, k=rng.randint(0, 40))) for _ in range(rng.randint(1, 30))]
        query = " ".join(rng.choices([*vocabulary, "unseen"], k=rng.randint(0, 60)))
        assert torch.equal(scores_of(texts, query, **settings), BM25(texts, **settings).score_all([query])[0])


@pytest.mark.parametrize("texts", [["", ""], ["the of", "and"]], ids=["empty", "stop words"])
def test_texts_without_words_score_zero(texts: list[str]) -> None:
    assert scores_of(texts, "a quick query").tolist() == [0.0, 0.0]
