from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.language_models.strict_answers import REFUSED_ANSWER
from graphrerank.text import WordTokenizer
from graphrerank_papers.summaries import FULL_SHARE, SAME_SENTENCE_COSINE, pick_sentences, write_summaries


def test_a_summary_that_is_too_long_is_asked_for_again(scripted_model: Any) -> None:
    again = "- a\n- b" + REFUSED_ANSWER.format(reason="the summary must have at most 2 tokens, got 3")
    answers = {"- a\n- b": "one two three", again: "one two", "- c": "x"}
    model = scripted_model(lambda _, question: {"summary": answers[question]})
    assert write_summaries(model, [["a", "b"], ["c"]], WordTokenizer(), limit=2) == ["one two", "x"]
    assert {system for system, _ in model.asked} == {shipped_prompt("summary").instructions(words=1)}


def test_what_stays_useless_is_none(scripted_model: Any) -> None:
    model = scripted_model(lambda _, question: {"summary": "fine"} if question == "- b" else "useless")
    assert write_summaries(model, [["a"], ["b"]], WordTokenizer(), limit=9) == [None, "fine"]
    assert len(model.asked) == 4


def one_by_one(vectors: Tensor, num_tokens: list[int], limit: int, centrality: float) -> list[int]:
    """Pick as the docstring says, in plain Python."""
    mean = vectors.mean(dim=0)
    picked: list[int] = []
    while sum(num_tokens[p] for p in picked) < FULL_SHARE * limit:
        best, chosen = float("-inf"), None
        for number, vector in enumerate(vectors):
            room = limit - sum(num_tokens[p] for p in picked)
            likeness = [float(vector @ vectors[p]) for p in picked]
            if number in picked or num_tokens[number] > room or max(likeness, default=0.0) >= SAME_SENTENCE_COSINE:
                continue
            nearest = max([0.0, *likeness])
            score = centrality * float(vector @ mean / mean.norm()) - (1 - centrality) * nearest
            if score > best + 1e-9:
                best, chosen = score, number
        if chosen is None:
            break
        picked.append(chosen)
    return picked


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("centrality", [0.0, 0.5, 0.7, 1.0])
def test_against_one_by_one(seed: int, centrality: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.nn.functional.normalize(torch.randn(12, 4, generator=generator, dtype=torch.float64), dim=1)
    vectors[7] = vectors[2]
    num_tokens = torch.randint(1, 9, (12,), generator=generator).tolist()
    found = pick_sentences(vectors, num_tokens, limit=20, centrality=centrality)
    assert found == one_by_one(vectors, num_tokens, 20, centrality)
    assert not {2, 7} <= set(found)


def test_the_limit() -> None:
    vectors = torch.eye(3)
    assert pick_sentences(vectors, [5, 9, 5], limit=8) == [0]
    assert pick_sentences(vectors, [9, 9, 9], limit=8) == []
    assert pick_sentences(vectors[:0], [], limit=8) == []
    # nothing is added where the limit is nearly reached
    assert pick_sentences(vectors, [14, 1, 1], limit=16, centrality=1.0) == [0]
    assert pick_sentences(vectors, [13, 1, 1], limit=16, centrality=1.0) == [0, 1]
