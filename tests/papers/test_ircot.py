import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Resources
from graphrerank_papers.ircot import ChainOfThought
from tests.support.language_models import ScriptedModel

TEXTS = [
    "Solaris. A film by Andrei Tarkovsky.",
    "Andrei Tarkovsky. Born in Zavrazhye.",
    "Zavrazhye. A village near Kostroma.",
    "Kostroma. A city on the Volga.",
    "Volga. A river.",
    "Paris. The capital of France.",
]
QUERY = "Where was the director of Solaris born?"
SCRIPT = {  # query and its thoughts -> the answer
    (QUERY, "none"): "Its director Tarkovsky was born in Zavrazhye. Then a second sentence.",
    (QUERY, "Its director Tarkovsky was born in Zavrazhye."): "Kostroma is near that village.",
    ("Capital of France?", "none"): "So the answer is Paris.",
    ("river", "none"): "The city on the Volga is Kostroma.",
    ("river", "The city on the Volga is Kostroma."): "So the ANSWER IS: Kostroma.",
    ("Nothing?", "none"): "Nothing is known.",
    ("Silent?", "none"): " ",
}


def scripted(_: str, question: str) -> str:
    query, thoughts, last = question.split("\n\n")[-3:]
    assert last == "Next sentence:"
    return SCRIPT[query.removeprefix("Question: "), thoughts.removeprefix("Reasoning so far: ")]


@pytest.fixture
def author() -> ScriptedModel:
    return ScriptedModel(scripted)


class Words:
    """An encoder: one dimension for each text of the corpus, by the longer words shared with it."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        found = [set(re.findall(r"\w{5,}", text.lower())) for text in texts]
        rows = [[len(words & set(re.findall(r"\w{5,}", text.lower()))) + 1e-3 for text in TEXTS] for words in found]
        return torch.nn.functional.normalize(torch.tensor(rows), dim=1)


CORPUS = CorpusGraph.from_edges([f"n{i}" for i in range(6)], TEXTS, torch.zeros(0, 2, dtype=torch.int64))


def step(retriever: Any, author: ScriptedModel, **settings: Any) -> ChainOfThought:
    """Build a step that searches with a factory of retrievers."""
    return ChainOfThought(Resources(CORPUS, 100, retriever, None, Words()), language_model=author, **settings)


def naive(query: str, *, num_steps: int, top_k: int) -> list[int]:
    """The paper's loop for one query, in words: retrieve, reason, retrieve with the last sentence."""
    retriever = BM25Retriever(CORPUS, top_k=top_k)
    paragraphs: list[int] = []
    chain: list[str] = []
    for step in range(num_steps):
        asked = query if not chain else chain[-1]
        for node in retriever.retrieve(Queries(["q"], [asked])).nodes[0].tolist():
            if node not in paragraphs and node >= 0:
                paragraphs.append(node)
        if step < num_steps - 1 and query.strip():
            chain.append(SCRIPT[query, " ".join(chain) or "none"].split(". ")[0].rstrip(".") + ".")
            if "answer is" in chain[-1].lower():
                break
        elif not query.strip():
            break
    return paragraphs


@pytest.mark.parametrize("num_steps", [1, 2, 3])
@pytest.mark.parametrize("top_k", [1, 2, 5, 9])
def test_against_the_naive_loop(num_steps: int, top_k: int, author: ScriptedModel) -> None:
    texts = [QUERY, " ", "Capital of France?", "river"]
    asked = Queries([f"q{i}" for i in range(4)], texts)
    found = step(BM25Retriever, author, num_steps=num_steps, top_k=top_k).retrieve(asked)
    assert found.nodes.shape == (4, num_steps * top_k)
    for row, text in enumerate(texts):
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert nodes == naive(text, num_steps=num_steps, top_k=top_k)
        assert found.scores[row, : len(nodes)].tolist() == pytest.approx([1 / (i + 1) for i in range(len(nodes))])
        assert bool((found.scores[row, len(nodes) :] == -torch.inf).all())
    assert len(author.asked) == {1: 0, 2: 3, 3: 5}[num_steps]  # none for white space, none after the answer


def test_the_model_reads_all_that_was_found_and_all_it_wrote(author: ScriptedModel) -> None:
    step(BM25Retriever, author, num_steps=3, top_k=1).retrieve(Queries(["q"], [QUERY]))
    assert author.asked[1][1] == (
        f"Passage 1: {TEXTS[0]}\n\nPassage 2: {TEXTS[1]}\n\nQuestion: {QUERY}\n\n"
        "Reasoning so far: Its director Tarkovsky was born in Zavrazhye.\n\nNext sentence:"
    )


class Unanswered:
    def __init__(self, graph: CorpusGraph, *, top_k: int) -> None:
        pass

    def retrieve(self, queries: Queries) -> Ranking:
        nodes = torch.full((len(queries), 3), -1)
        return Ranking(nodes, torch.full(nodes.shape, -torch.inf))


def test_nothing_found_no_queries_and_an_empty_answer(author: ScriptedModel) -> None:
    operator = step(Unanswered, author, top_k=3)
    assert operator.retrieve(Queries(["q"], ["Nothing?"])).nodes.tolist() == [[-1] * 6]
    assert operator.retrieve(Queries([], [])).nodes.shape == (0, 6)
    with pytest.raises(ValueError, match="the answer must be a sentence, got ' '"):
        operator.retrieve(Queries(["q"], ["Silent?"]))


def test_as_a_step_that_asks_nothing_twice(author: ScriptedModel, tmp_path: Path) -> None:
    graph = CORPUS.with_embedding(Words().encode(TEXTS))
    asked = Queries(["a", "b"], [QUERY, "Capital of France?"], Words().encode([QUERY, "Capital of France?"]))

    def pipeline(budget: int) -> Pipeline:
        steps = [partial(ChainOfThought, language_model=author, top_k=1, num_steps=3, cache=tmp_path)]
        return Pipeline(graph, steps=steps, text_encoder=Words(), budget=budget)

    for _ in range(2):
        found = pipeline(3).retrieve(asked)
        assert found.ranking.nodes.tolist() == [[0, 1, 2], [5, -1, -1]]
        assert set(found.seconds) == {"retrieve"}
    assert pipeline(2).retrieve(asked).ranking.nodes.tolist() == [[0, 1], [5, -1]]
    assert len(author.asked) == 3


def test_thoughts_need_an_encoder_where_the_search_reads_vectors(author: ScriptedModel) -> None:
    graph, step = CORPUS.with_embedding(torch.eye(6)), partial(ChainOfThought, language_model=author, top_k=1)
    with pytest.raises(ValueError, match="`text_encoder` must be given for the vectors of thoughts"):
        Pipeline(graph, steps=[step])
    found = Pipeline(graph, steps=[step], retriever=partial(BM25Retriever), budget=2).retrieve(Queries(["a"], [QUERY]))
    assert found.ranking.nodes.tolist() == [[0, 1]]
