from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.language_models.prompt import Prompt
from graphrerank.operators.dense import DenseRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import VectorSearch
from graphrerank_papers.hyde import HypotheticalPassages


class Parrot:
    """A language model that answers with the question and how often it was asked."""

    fingerprint = "parrot"

    def __init__(self) -> None:
        self.questions: list[str] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], str]) -> list[str]:
        assert system is None
        before = len(self.questions)
        self.questions += questions
        return [read(f"{question} {before + i}") for i, question in enumerate(questions)]


class Lengths:
    """An encoder whose vectors tell the length of a text and its last digit."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        return torch.nn.functional.normalize(torch.tensor([[len(t), float(t[-1]), 1.0] for t in texts]), dim=1)


GRAPH = CorpusGraph.from_edges(list("abc"), [""] * 3, torch.zeros(0, 2, dtype=torch.int64)).with_embedding(torch.eye(3))


def step(model: Parrot, **settings: Any) -> HypotheticalPassages:
    return HypotheticalPassages(Resources(GRAPH, 3, DenseRetriever, None, Lengths()), language_model=model, **settings)


def queries(texts: list[str]) -> Queries:
    vectors = torch.nn.functional.normalize(torch.arange(3.0 * len(texts)).reshape(-1, 3) + 1, dim=1)
    return Queries([f"q{i}" for i in range(len(texts))], texts, vectors)


def test_against_naive_mean() -> None:
    asked, model = queries(["who {}?", " ", "what"]), Parrot()
    found = step(model, num_passages=3, prompt=Prompt("p", "Q: {question}.")).rewrite(asked)
    assert model.questions == ["Q: who {}?."] * 3 + ["Q: what."] * 3
    assert torch.equal(found.encoded[1], asked.encoded[1])
    for row, passages in ((0, [f"Q: who {{}}?. {i}" for i in range(3)]), (2, [f"Q: what. {i}" for i in range(3, 6)])):
        mean = sum([asked.encoded[row], *Lengths().encode(passages)]) / 4
        torch.testing.assert_close(found.encoded[row], mean / mean.norm())
    assert (found.ids, found.texts) == (asked.ids, asked.texts)


def test_an_empty_passage_is_no_answer(scripted_model: Any) -> None:
    with pytest.raises(ValueError, match="the answer must be a passage, got ' '"):
        step(scripted_model(lambda *_: " "), prompt=Prompt("p", "{question}", system="s")).rewrite(queries(["who"]))


def test_as_a_step_that_asks_nothing_twice(tmp_path: Path) -> None:
    model, asked = Parrot(), Queries(["q", "r"], ["who", "who"], torch.eye(3)[1:])
    rewriting = partial(HypotheticalPassages, language_model=model, num_passages=2, cache=tmp_path)
    steps = [rewriting, VectorSearch]
    runs = [Pipeline(GRAPH, steps=steps, budget=3, text_encoder=Lengths()).retrieve(asked).ranking for _ in range(2)]
    assert len(model.questions) == 4  # each passage of each query is one of its own
    assert torch.equal(runs[0].scores, runs[1].scores)
    plain = Pipeline(GRAPH, steps=[VectorSearch], budget=3).retrieve(asked).ranking
    assert plain.nodes.tolist() == [[1, 0, 2], [2, 0, 1]]
    assert (runs[0].scores[:, 1] > 0.3).all()
    assert (plain.scores[:, 1] == 0).all()
    with pytest.raises(ValueError, match="`text_encoder` must be given for hypothetical passages"):
        Pipeline(GRAPH, steps=steps)
