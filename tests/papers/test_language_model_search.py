import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.core import Queries, Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.language_models.prompt import Prompt
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.dense import DenseRetriever
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Resources
from graphrerank.pipelines.steps import VectorSearch
from graphrerank_papers.language_model_search import ChainOfThought, HypotheticalPassages, KnowledgeGraphPrompting
from tests.support.language_models import ScriptedModel


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


def hyde(model: Parrot, **settings: Any) -> HypotheticalPassages:
    return HypotheticalPassages(Resources(GRAPH, 3, DenseRetriever, None, Lengths()), language_model=model, **settings)


def queries(texts: list[str]) -> Queries:
    vectors = torch.nn.functional.normalize(torch.arange(3.0 * len(texts)).reshape(-1, 3) + 1, dim=1)
    return Queries([f"q{i}" for i in range(len(texts))], texts, vectors)


def test_hypothetical_passages_against_naive_mean() -> None:
    asked, model = queries(["who {}?", " ", "what"]), Parrot()
    found = hyde(model, num_passages=3, prompt=Prompt("p", "Q: {question}.")).rewrite(asked)
    assert model.questions == ["Q: who {}?."] * 3 + ["Q: what."] * 3
    assert torch.equal(found.encoded[1], asked.encoded[1])
    for row, passages in ((0, [f"Q: who {{}}?. {i}" for i in range(3)]), (2, [f"Q: what. {i}" for i in range(3, 6)])):
        mean = sum([asked.encoded[row], *Lengths().encode(passages)]) / 4
        torch.testing.assert_close(found.encoded[row], mean / mean.norm())
    assert (found.ids, found.texts) == (asked.ids, asked.texts)


def test_an_empty_passage_is_no_answer(scripted_model: Any) -> None:
    with pytest.raises(ValueError, match="the answer must be a text that is not blank, got ' '"):
        hyde(scripted_model(lambda *_: " "), prompt=Prompt("p", "{question}", system="s")).rewrite(queries(["who"]))


def test_hypothetical_passages_are_asked_for_once(tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="`text_encoder` is required for hypothetical passages"):
        Pipeline(GRAPH, steps=steps)


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


def ircot(retriever: Any, author: ScriptedModel, **settings: Any) -> ChainOfThought:
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
def test_chain_of_thought_against_the_naive_loop(num_steps: int, top_k: int, author: ScriptedModel) -> None:
    texts = [QUERY, " ", "Capital of France?", "river"]
    asked = Queries([f"q{i}" for i in range(4)], texts)
    found = ircot(BM25Retriever, author, num_steps=num_steps, top_k=top_k).retrieve(asked)
    assert found.nodes.shape == (4, num_steps * top_k)
    for row, text in enumerate(texts):
        nodes = [node for node in found.nodes[row].tolist() if node >= 0]
        assert nodes == naive(text, num_steps=num_steps, top_k=top_k)
        assert found.scores[row, : len(nodes)].tolist() == pytest.approx([1 / (i + 1) for i in range(len(nodes))])
        assert bool((found.scores[row, len(nodes) :] == -torch.inf).all())
    assert len(author.asked) == {1: 0, 2: 3, 3: 5}[num_steps]  # none for white space, none after the answer


def test_the_model_reads_all_that_was_found_and_all_it_wrote(author: ScriptedModel) -> None:
    ircot(BM25Retriever, author, num_steps=3, top_k=1).retrieve(Queries(["q"], [QUERY]))
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
    operator = ircot(Unanswered, author, top_k=3)
    assert operator.retrieve(Queries(["q"], ["Nothing?"])).nodes.tolist() == [[-1] * 6]
    assert operator.retrieve(Queries([], [])).nodes.shape == (0, 6)
    with pytest.raises(ValueError, match="the answer must be a text that is not blank, got ' '"):
        operator.retrieve(Queries(["q"], ["Silent?"]))


def test_thoughts_are_asked_for_once(author: ScriptedModel, tmp_path: Path) -> None:
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
    with pytest.raises(ValueError, match="`text_encoder` is required for the vectors of thoughts"):
        Pipeline(graph, steps=[step])
    found = Pipeline(graph, steps=[step], retriever=partial(BM25Retriever), budget=2).retrieve(Queries(["a"], [QUERY]))
    assert found.ranking.nodes.tolist() == [[0, 1]]


Build = Callable[..., Pipeline]


@pytest.fixture
def graph(hash_encoder: Any) -> CorpusGraph:
    texts = [f"passage {i}" for i in range(40)]
    edges = torch.randint(0, 34, (60, 2), generator=torch.Generator().manual_seed(0))
    corpus = CorpusGraph.from_edges([f"n{i}" for i in range(40)], texts, edges[edges[:, 0] != edges[:, 1]])
    return corpus.with_embedding(hash_encoder.encode(texts))


@pytest.fixture
def pipeline(graph: CorpusGraph, hash_encoder: Any) -> Build:
    def make(**settings: Any) -> Pipeline:
        steps = [VectorSearch, partial(KnowledgeGraphPrompting, **settings)]
        return Pipeline(graph, steps=steps, budget=25, text_encoder=hash_encoder)

    return make


def by_hand(
    graph: CorpusGraph, question: str, encode: Callable[[str], torch.Tensor], evidence: Callable[[str, list[str]], str],
    *, seeds: int, branches: int, hops: int,
) -> list[int]:  # fmt: skip
    """Algorithm 1 for one question: a queue of paths, and the passages in the order of the paths."""
    vectors = [encode(text) for text in graph.texts]
    score = [float(vector @ encode(question)) for vector in vectors]
    dense = sorted(range(len(vectors)), key=lambda node: (-score[node], node))
    seen, queue = set(dense[:seeds]), [[seed] for seed in dense[:seeds]]
    followed: dict[int, list[int]] = {}
    while queue:
        path = queue.pop(0)
        if len(path) > hops:
            continue
        start, stop = graph.indptr[path[-1]], graph.indptr[path[-1] + 1]
        neighbours = [node for node in graph.indices[start:stop].tolist() if node not in seen]
        needed = encode(evidence(question, [graph.texts[node] for node in path]))
        best = sorted(neighbours, key=lambda node: (-float(vectors[node] @ needed), node))[:branches]
        followed[path[-1]] = best
        seen |= set(best)
        queue += [[*path, node] for node in best]

    def walk(node: int) -> list[int]:
        return [node, *(below for child in followed.get(node, []) for below in walk(child))]

    return list(dict.fromkeys([*(node for seed in dense[:seeds] for node in walk(seed)), *dense]))[:25]


@pytest.mark.parametrize("settings", [(5, 2, 2), (2, 3, 3), (1, 1, 1)])
def test_knowledge_graph_prompting_against_the_algorithm(
    settings: tuple[int, int, int], pipeline: Build, graph: CorpusGraph, hash_encoder: Any
) -> None:
    seeds, branches, hops = settings
    system = pipeline(num_seeds=seeds, num_branches=branches, num_hops=hops)
    queries = hash_encoder.queries([f"question {i}" for i in range(6)])
    found = system.retrieve(queries).ranking
    for row, question in enumerate(queries.texts):
        expected = by_hand(
            graph, question, lambda text: hash_encoder.encode([text])[0],
            lambda asked, passages: "\n".join([asked, *passages]), seeds=seeds, branches=branches, hops=hops,
        )  # fmt: skip
        assert found.nodes[row].tolist() == expected
    assert not torch.equal(
        found.nodes, Pipeline(graph, steps=[VectorSearch], budget=25).retrieve(queries).ranking.nodes
    )


def test_a_language_model_writes_the_evidence(
    pipeline: Build, graph: CorpusGraph, hash_encoder: Any, scripted_model: Any, tmp_path: Path
) -> None:
    def evidence(asked: str, passages: Sequence[str]) -> str:
        told = "\n\n".join([f"Question: {asked}", *(f"Passage: {passage}" for passage in passages)])
        return f"evidence {len(told)}"

    agent = scripted_model(lambda _, question: f"evidence {len(question)}\n")
    queries = hash_encoder.queries(["question 1", "question 22"])
    system = pipeline(language_model=agent, cache=tmp_path)
    found = system.retrieve(queries).ranking.nodes
    asked = len(agent.asked)
    assert asked > 10
    system.retrieve(queries)
    assert len(agent.asked) == asked  # answers are kept
    for row, question in enumerate(queries.texts):
        encode = lambda text: hash_encoder.encode([text])[0]  # noqa: E731
        assert found[row].tolist() == by_hand(graph, question, encode, evidence, seeds=5, branches=2, hops=2)


def test_an_encoder_is_needed_and_numbers_are_positive(graph: CorpusGraph, pipeline: Build) -> None:
    with pytest.raises(ValueError, match="`text_encoder` is required to encode evidence"):
        Pipeline(graph, steps=[VectorSearch, KnowledgeGraphPrompting])
    with pytest.raises(ValueError, match="`num_hops` must be a positive integer, got 0"):
        pipeline(num_hops=0)
