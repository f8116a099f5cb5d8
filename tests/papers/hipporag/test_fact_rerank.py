import json
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.language_models.client import LanguageModel
from graphrerank_papers.hipporag.fact_rerank import LanguageModelFactFilter, PairFactReranker

FACTS = [["Metz lies on Moselle", "Trier is old", "Lothair died in Metz"], [], ["Trier is old"]]
TEXTS = ["Where did Lothair die?", "Who?", "How old is Trier?"]


class Lengths:
    """A pair encoder that likes long facts."""

    hidden_size = 1
    fingerprint = "lengths"

    def encode(self, query_texts: list[str], passages: list[str]) -> Tensor:
        assert len(query_texts) == len(passages)
        return torch.tensor([[float(len(passage))] for passage in passages])

    def head(self, vectors: Tensor) -> Tensor:
        return vectors.sum(-1)


def test_by_logits_ties_by_place() -> None:
    reranker = PairFactReranker(Lengths())  # lengths 20, 12 and 20
    assert reranker.rerank(TEXTS, FACTS) == [[0, 2, 1], [], [0]]
    assert reranker.rerank([], []) == []
    assert reranker.rerank(["a"], [[]]) == [[]]


def question(text: str, facts: list[str]) -> str:
    return f"Question: {text}\nFacts:\n" + "\n".join(f"{i}. {fact}" for i, fact in enumerate(facts, 1))


@pytest.mark.parametrize(
    ("answer", "places", "unreadable"),
    [
        ("[3, 1]", [2, 0], 0),
        ("[2, 2]", [1], 0),
        ("[]", [], 0),
        ("[4]", [0, 1, 2], 1),
        ("[0]", [0, 1, 2], 1),
        ("[true]", [0, 1, 2], 1),
        ('{"facts": [1]}', [0, 1, 2], 1),
        ("Facts 1 and 2.", [0, 1, 2], 1),
    ],
)
def test_a_language_model_chooses(answer: str, places: list[int], unreadable: int, endpoint: tuple[str, Any]) -> None:
    pytest.importorskip("httpx", reason="httpx is optional")
    address, handler = endpoint
    content = {"choices": [{"message": {"content": answer}}]}
    first, last = question(TEXTS[0], FACTS[0]), question(TEXTS[2], FACTS[2])
    handler.script[first] = [(200, content)]
    handler.script[last] = [(200, {"choices": [{"message": {"content": json.dumps([1])}}]})]
    chooser = LanguageModelFactFilter(LanguageModel(address, "tiny"))
    assert chooser.rerank(TEXTS, FACTS) == [places, [], [0]]
    assert chooser.num_unreadable == unreadable
    assert sorted(body["messages"][-1]["content"] for body in handler.requests) == sorted([first, last])
