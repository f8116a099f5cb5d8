import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, Queries, Ranking
from graphrerank.language_models.prompt import shipped_prompt
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Resources
from graphrerank_papers.ircot import ChainOfThought

TEXTS = [
    "Solaris. A film by Andrei Tarkovsky.",
    "Andrei Tarkovsky. Born in Zavrazhye.",
    "Zavrazhye. A village near Kostroma.",
    "Kostroma. A city on the Volga.",
    "Volga. A river.",
    "Paris. The capital of France.",
]


class Author:
    """A language model that goes by a script: what to answer where the question's end says a query and its thoughts."""

    fingerprint = "author"

    def __init__(self, script: dict[tuple[str, str], str]) -> None:
        self.script = script
        self.questions: list[str] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        assert system == shipped_prompt("ircot_thought").system
        self.questions += questions
        return [read(self.script[self.key(question)]) for question in questions]

    @staticmethod
    def key(question: str) -> tuple[str, str]:
        query, thoughts, last = question.split("\n\n")[-3:]
        assert last == "Next sentence:"
        return query.removeprefix("Question: "), thoughts.removeprefix("Reasoning so far: ")


class Words:
    """An encoder: one dimension for each text of the corpus, by the longer words shared with it."""

    def encode(self, texts: Sequence[str]) -> Tensor:
        found = [set(re.findall(r"\w{5,}", text.lower())) for text in texts]
        rows = [[len(words & set(re.findall(r"\w{5,}", text.lower()))) + 1e-3 for text in TEXTS] for words in found]
        return torch.nn.functional.normalize(torch.tensor(rows), dim=1)


def corpus(texts: Sequence[str] = TEXTS) -> CorpusGraph:
    return CorpusGraph.from_edges([f"n{i}" for i in range(len(texts))], texts, torch.zeros(0, 2, dtype=torch.int64))


def step(retriever: Any, author: Author, **settings: Any) -> ChainOfThought:
    """Build a step that searches with a factory of retrievers."""
    return ChainOfThought(Resources(corpus(), 100, retriever, None, Words()), language_model=author, **settings)


def naive(graph: CorpusGraph, author: Author, query: str, *, num_steps: int, top_k: int) -> list[int]:
    """The paper's loop for one query, in words: retrieve, reason, retrieve with the last sentence."""
    retriever = BM25Retriever(graph, top_k=top_k)
    paragraphs: list[int] = []
    chain: list[str] = []
    for step in range(num_steps):
        asked = query if not chain else chain[-1]
        for node in retriever.retrieve(Queries(["q"], [asked])).nodes[0].tolist():
            if node not in paragraphs and node >= 0:
                paragraphs.append(node)
        if step < num_steps - 1 and query.strip():
            chain.append(author.script[query, " ".join(chain) or "none"].split(". ")[0].rstrip(".") + ".")
            if "answer is" in chain[-1].lower():
                break
        elif not query.strip():
            break
    return paragraphs


SCRIPT = {
    (
        "Where was the director of Solaris born?",
        "none",
    ): "Its director Tarkovsky was born in Zavrazhye. Then a second sentence.",
    (
        "Where was the director of Solaris born?",
        "Its director Tarkovsky was born in Zavrazhye.",
    ): "Kostroma is near that village.",
    ("Capital of France?", "none"): "So the answer is Paris.",
    ("river", "none"): "The city on the Volga is Kostroma.",
    ("river", "The city on the Volga is Kostroma."): "So the ANSWER IS: Kostroma.",
}


@pytest.mark.parametrize("num_steps", [1, 2, 3])
@pytest.mark.parametrize("top_k", [1, 2, 5, 9])
def test_against_the_naive_loop(num_steps: int, top_k: int) -> None:
    graph, author = corpus(), Author(SCRIPT)
    texts = ["Where was the director of Solaris born?", " ", "Capital of France?", "river"]
    asked = Queries([f"q{i}" for i in range(4)], texts)
    found = step(BM25Retriever, author, num_steps=num_steps, top_k=top_k).retrieve(asked)
    assert found.nodes.shape == (4, num_steps * top_k)
    for row, text in enumerate(texts):
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert nodes == naive(graph, author, text, num_steps=num_steps, top_k=top_k)
        assert found.scores[row, : len(nodes)].tolist() == pytest.approx([1 / (i + 1) for i in range(len(nodes))])
        assert bool((found.scores[row, len(nodes) :] == -torch.inf).all())
    assert len(author.questions) == {1: 0, 2: 3, 3: 5}[num_steps]  # none for white space, none after the answer


def test_the_model_reads_all_that_was_found_and_all_it_wrote() -> None:
    author, query = Author(SCRIPT), "Where was the director of Solaris born?"
    step(BM25Retriever, author, num_steps=3, top_k=1).retrieve(Queries(["q"], [query]))
    assert author.questions[1] == (
        f"Passage 1: {TEXTS[0]}\n\nPassage 2: {TEXTS[1]}\n\nQuestion: {query}\n\n"
        "Reasoning so far: Its director Tarkovsky was born in Zavrazhye.\n\nNext sentence:"
    )


class Unanswered:
    def __init__(self, graph: CorpusGraph, *, top_k: int) -> None:
        pass

    def retrieve(self, queries: Queries) -> Ranking:
        nodes = torch.full((len(queries), 3), -1)
        return Ranking(nodes, torch.full(nodes.shape, -torch.inf))


def test_nothing_found_and_no_queries() -> None:
    author = Author({("a", "none"): "Nothing is known."})
    operator = step(Unanswered, author, top_k=3)
    assert operator.retrieve(Queries(["q"], ["a"])).nodes.tolist() == [[-1] * 6]
    assert operator.retrieve(Queries([], [])).nodes.shape == (0, 6)


def test_an_empty_answer_is_none() -> None:
    with pytest.raises(ValueError, match="the answer must be a sentence, got ' '"):
        step(Unanswered, Author({("a", "none"): " "})).retrieve(Queries(["q"], ["a"]))


QUERY = "Where was the director of Solaris born?"


def test_as_a_step_that_asks_nothing_twice(tmp_path: Path) -> None:
    author = Author(SCRIPT)
    graph = corpus().with_embedding(Words().encode(TEXTS))
    asked = Queries(["a", "b"], [QUERY, "Capital of France?"], Words().encode([QUERY, "Capital of France?"]))

    def pipeline(budget: int) -> Pipeline:
        steps = [partial(ChainOfThought, language_model=author, top_k=1, num_steps=3, cache=tmp_path)]
        return Pipeline(graph, steps=steps, text_encoder=Words(), budget=budget)

    for _ in range(2):
        found = pipeline(3).retrieve(asked)
        assert found.ranking.nodes.tolist() == [[0, 1, 2], [5, -1, -1]]
        assert set(found.seconds) == {"retrieve"}
    assert pipeline(2).retrieve(asked).ranking.nodes.tolist() == [[0, 1], [5, -1]]
    assert len(author.questions) == 3


def test_thoughts_need_an_encoder_where_the_search_reads_vectors() -> None:
    graph, step = corpus().with_embedding(torch.eye(6)), partial(ChainOfThought, language_model=Author(SCRIPT), top_k=1)
    with pytest.raises(ValueError, match="`text_encoder` must be given for the vectors of thoughts"):
        Pipeline(graph, steps=[step])
    found = Pipeline(graph, steps=[step], retriever=partial(BM25Retriever), budget=2).retrieve(Queries(["a"], [QUERY]))
    assert found.ranking.nodes.tolist() == [[0, 1]]
