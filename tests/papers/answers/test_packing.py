import random

import pytest

from graphrerank.text import split_sentences
from graphrerank_papers.answers.packing import Packing, candidate_texts


def naive(texts: list[str], budget: int, top_k: int, unit: str) -> list[str]:
    """The rule in words, over lists of words."""
    kept: list[str] = []
    left = budget
    for text in texts[:top_k]:
        words = text.split()
        if words and len(words) <= left:
            kept.append(text)
            left -= len(words)
            continue
        if words and left:
            parts: list[str] = []
            for start, stop in split_sentences(text):
                if sum(len(part.split()) for part in [*parts, text[start:stop]]) > left:
                    break
                parts.append(text[start:stop])
            if unit == "sentences" and parts:
                kept.append(" ".join(parts))
            elif not kept:
                kept.append(" ".join(words[:left]))
        break
    return kept


@pytest.mark.parametrize("unit", ["passages", "sentences"])
def test_against_a_naive_packer(unit: str) -> None:
    draw = random.Random(0)
    for _ in range(200):
        texts = [
            " ".join(f"{' '.join(['word'] * draw.randint(1, 4))}." for _ in range(draw.randint(1, 3)))
            for _ in range(draw.randint(0, 6))
        ]
        budget, top_k = draw.randint(1, 25), draw.randint(1, 6)
        (context,) = Packing(budget, top_k=top_k, unit=unit).pack([texts])
        assert list(context.passages) == naive(texts, budget, top_k, unit)
        assert context.num_tokens == len(context.text.split()) <= budget


class Letters:
    """Counts every character, also those between passages."""

    fingerprint = "letters"

    def spans(self, texts):  # type: ignore[no-untyped-def]
        return [[(place, place + 1) for place in range(len(text))] for text in texts]


def test_separators_count_and_the_order_of_reading() -> None:
    contexts = Packing(5, tokenizer=Letters()).pack([["ab", "c", "d"], ["abcdefg"], []])
    assert [(context.text, context.num_tokens) for context in contexts] == [("ab\n\nc", 5), ("abcde", 5), ("", 0)]
    assert [context.text for context in Packing(5, top_k=0).pack([["ab"], []])] == ["", ""]
    (context,) = Packing(4, order="best_last").pack([["a b", "c", "d", "e"]])
    assert context.text == "d\n\nc\n\na b"


def test_passages_of_ranked_nodes() -> None:
    assert candidate_texts(["a", "b", "c"], [[2, 0], [1, -1], [-1, -1]]) == [["c", "a"], ["b"], []]
