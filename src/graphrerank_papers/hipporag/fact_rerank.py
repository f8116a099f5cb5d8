"""Reranking and filtering of a query's facts by a model that reads both."""

import json
from collections.abc import Sequence
from typing import Protocol

from graphrerank.graphs import PairEncoder
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, in_form, shipped_prompt


class FactReranker(Protocol):
    """Anything that selects and orders facts."""

    def rerank(self, query_texts: Sequence[str], facts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Select from the facts of each of ``B`` queries: unique positions in its list, most relevant first."""


class PairFactReranker:
    """Orders facts by a cross-encoder's logits, ties broken by position; keeps all of them.

    Source: "EA-GraphRAG", 2026, Eq. (5), with a cross-encoder instead of the language model.
    """

    def __init__(self, encoder: PairEncoder) -> None:
        self.encoder = encoder

    def rerank(self, query_texts: Sequence[str], facts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Encode all pairs of query and fact in one call."""
        pairs = [(text, fact) for text, listed in zip(query_texts, facts, strict=True) for fact in listed]
        if not pairs:
            return [[] for _ in facts]
        vectors = self.encoder.encode([text for text, _ in pairs], [fact for _, fact in pairs])
        logits = iter(self.encoder.head(vectors).tolist())
        scores = [[next(logits) for _ in listed] for listed in facts]
        return [sorted(range(len(row)), key=lambda position: (-row[position], position)) for row in scores]


class LanguageModelFactFilter:
    """Lets a language model select the relevant facts, which may be none.

    Source: "EA-GraphRAG", 2026, Eq. (5), and HippoRAG 2's recognition memory. If an answer is not the requested
    JSON, it is counted and all facts of its query are kept in order.

    Args:
        model: Language model.
        prompt: With the places ``{question}`` and ``{facts}``; None for the one that ships.

    Attributes:
        num_unreadable: Number of answers that were not the requested JSON, over all calls.
    """

    def __init__(self, model: ChatModel, *, prompt: Prompt | None = None) -> None:
        self.model = model
        self.prompt = prompt or shipped_prompt("ea_graphrag_facts")
        self.prompt.fill(question="", facts="")
        self.num_unreadable = 0

    def rerank(self, query_texts: Sequence[str], facts: Sequence[Sequence[str]]) -> list[list[int]]:
        """Ask about each query that has facts."""
        selected: list[list[int]] = [[] for _ in facts]
        rows = [row for row, listed in enumerate(facts) if listed]
        questions = [self.prompt.fill(question=query_texts[row], facts=_numbered(facts[row])) for row in rows]
        model = in_form(self.model, self.prompt.form)
        answers = model.ask(questions, system=self.prompt.instructions(), read=_read)
        for row, answer in zip(rows, answers, strict=True):
            if answer is None or not all(1 <= number <= len(facts[row]) for number in answer):
                self.num_unreadable += 1
                selected[row] = list(range(len(facts[row])))
            else:
                selected[row] = [number - 1 for number in dict.fromkeys(answer)]
        return selected


def _numbered(facts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {fact}" for number, fact in enumerate(facts, 1))


def _read(content: str) -> list[int] | None:
    try:
        answer = json.loads(content)
    except (ValueError, TypeError, RecursionError):  # TypeError: the model's answer was null
        return None
    if not isinstance(answer, list) or not all(type(number) is int for number in answer):
        return None
    return answer
