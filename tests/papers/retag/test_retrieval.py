import itertools
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.bm25 import BM25
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.text import WordTokenizer
from graphrerank_papers.knowledge.keywords import find_keywords
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.retrieval import (
    ExtractiveKeywords,
    LevelSummaries,
    ReTAGRetrieval,
    ReTAGSearch,
    ReTAGSearchSettings,
    ReTAGSetup,
    SummarySentences,
)
from tests.support.retag_index import make_index

pytest.importorskip("graspologic_native", reason="graspologic-native is optional")

QUESTIONS = [
    "Who loved Lothair?",
    "cities and rivers",
    "Old towns like Trier",
    "xyz",
    "kings who loved cities and rivers",
]


@pytest.fixture
def summaries(retag_index: ReTAGIndex) -> LevelSummaries:
    return LevelSummaries(retag_index, 1)


def rows(ranking: Ranking) -> list[list[int]]:
    return [[node for node in row if node >= 0] for row in ranking.nodes.tolist()]


@pytest.mark.parametrize("weights", [(1.0, 0.0), (0.0, 1.0), (0.3, 0.7)])
@pytest.mark.parametrize(("use_topics", "expand"), [*itertools.product([True, False], repeat=2)])
def test_against_naive_loop(
    weights: tuple[float, float], use_topics: bool, expand: bool, retag_index: ReTAGIndex, word_encoder: Any
) -> None:
    sentences, summaries = SummarySentences(retag_index, word_encoder), LevelSummaries(retag_index, 1)
    finder = ExtractiveKeywords(sentences, retag_index.topics, num_keywords=3) if expand else None
    of_text = {"bm25_weight": weights[0], "dense_weight": weights[1], "keyword_weight": 0.5}
    settings = ReTAGSearchSettings(top_p=2, use_topics=use_topics, **of_text)
    queries = word_encoder.queries(QUESTIONS)
    found = ReTAGRetrieval(summaries, settings, keywords=finder).retrieve(queries)
    bm25, texts = BM25(summaries.graph.texts), summaries.graph.texts
    for row, question in enumerate(QUESTIONS):
        close = retag_index.topics.similarity(word_encoder.encode([question]))[0] >= 0.3
        graphs = [1 + topic for topic, is_close in enumerate(close.tolist()) if is_close and use_topics] or [0]
        listed = [
            place
            for place, community in enumerate(summaries.communities[: summaries.num_listed].tolist())
            if int(retag_index.communities.graph[community]) in graphs
        ]
        words = " ".join(found.keywords[row])
        lexical = {p: float(bm25.score_all([question])[0, p] + 0.5 * bm25.score_all([words])[0, p]) for p in listed}
        best = max(lexical.values()) or 1.0
        dense = {p: float(word_encoder.encode([question])[0] @ word_encoder.encode([texts[p]])[0]) for p in listed}
        scores = {p: weights[0] * lexical[p] / best + weights[1] * dense[p] for p in listed}
        expected = sorted(listed, key=lambda p: (-scores[p], p))[:2]
        assert rows(found.ranking)[row] == expected
        assert found.ranking.scores[row][: len(expected)].tolist() == pytest.approx(
            [scores[p] for p in expected], abs=1e-5
        )
        assert found.candidates[row].nonzero().flatten().tolist() == listed
        assert bool(found.keywords[row]) == expand


def test_general_graphrag_reads_all_summaries_of_a_level(summaries: LevelSummaries, word_encoder: Any) -> None:
    settings = ReTAGSearchSettings(top_p=None, use_topics=False)
    found = ReTAGRetrieval(summaries, settings).retrieve(word_encoder.queries(QUESTIONS))
    assert rows(found.ranking) == [[0, 1, 2]] * 5
    assert found.ranking.scores.tolist() == [[0.0] * 3] * 5
    with_topics = ReTAGRetrieval(summaries, ReTAGSearchSettings(top_p=None)).retrieve(word_encoder.queries(QUESTIONS))
    assert rows(with_topics.ranking)[1] == [3, 4]
    assert with_topics.ranking.scores[1, 2] == -torch.inf


@pytest.mark.parametrize("top_p", [2, None])
def test_blank_questions_an_empty_index_and_no_question(
    top_p: int | None, empty_retag_index: ReTAGIndex, retag_index: ReTAGIndex, word_encoder: Any
) -> None:
    finder = ExtractiveKeywords(SummarySentences(retag_index, word_encoder), retag_index.topics)
    for index, texts, num_found in (
        (retag_index, ["", "  ", "Metz"], [0, 0, 2]), (empty_retag_index, ["Metz"], [0]),
        (empty_retag_index, [], []), (retag_index, [], []),
    ):  # fmt: skip
        settings = ReTAGSearchSettings(top_p=top_p)
        retrieval = ReTAGRetrieval(LevelSummaries(index, 0), settings, keywords=finder)
        found = retrieval.retrieve(word_encoder.queries(texts))
        assert [len(row) for row in rows(found.ranking)] == num_found
        assert len(found.keywords) == len(texts)
        assert found.graphs.any(1).tolist() == [bool(text.strip()) for text in texts]


def test_a_level_of_all_graphs_with_parents_behind_and_equal_summaries_once(retag_index: ReTAGIndex) -> None:
    summaries = LevelSummaries(retag_index, 1)
    assert summaries.communities.tolist() == [1, 2, 3, 4, 5, 6, 0]  # topics have one level, which is their finest
    assert summaries.num_listed == 6
    assert summaries.in_graph.int().tolist() == [[1, 1, 1, 0, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 0]]
    assert summaries.num_tokens.tolist() == [3, 5, 6, 5, 10, 6, 11]
    graph = summaries.graph
    assert graph.node_ids == ["0.0.1", "0.1.2", "0.1.3", "1.0.4", "1.0.5", "2.0.6", "0.0.0"]
    assert torch.equal(graph.encoded, retag_index.communities.vectors[summaries.communities])
    assert list(graph.texts)[:2] == ["Lothair loved Waldrada.", "Metz and Nancy are cities."]
    graphs = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0]]).bool()
    assert summaries.candidates(graphs).int().tolist() == [
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 0, 1, 1, 0, 0],
        [1, 1, 1, 0, 1, 0, 0],
        [0, 0, 0, 1, 1, 1, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ]


def test_an_empty_summary_is_no_candidate_and_closes_its_topic(word_encoder: Any) -> None:
    plan = [(0, 0, -1, (0,), "Metz fell."), (0, 0, -1, (1,), "")]  # no usable answer of a language model
    summaries = LevelSummaries(make_index(word_encoder, plan), 0)
    assert summaries.in_graph.tolist() == [[True, False], [False, False], [False, False]]
    found = ReTAGRetrieval(summaries, ReTAGSearchSettings()).retrieve(word_encoder.queries(["cities and rivers"]))
    assert found.graphs.tolist() == [GENERAL]


GENERAL, PLACES, PEOPLE, BOTH = ([True, False, False], [False, True, False], [False, False, True], [False, True, True])


def naive(index: ReTAGIndex, encoder: Any, question: str, *, num_sentences: int) -> list[str]:
    """Weigh the words of the nearest sentences, one after the other."""
    texts = list(index.sentences.texts)
    cosines = (encoder.encode(texts) @ encoder.encode([question])[0]).tolist()
    nearest = sorted(range(len(texts)), key=lambda i: -cosines[i])[:num_sentences]
    order = list(dict.fromkeys(word for text in texts for word in find_keywords(text)))
    weights = {}
    for word in order:
        holders = sum(word in find_keywords(text) for text in texts)
        idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
        shares = [max(0.0, cosines[i]) for i in nearest if word in find_keywords(texts[i])]
        if sum(shares) and word not in find_keywords(question):
            weights[word] = idf * sum(shares)
    return sorted(weights, key=lambda word: (-round(weights[word], 5), order.index(word)))


Find = Callable[..., list[list[str]]]


@pytest.fixture
def find(word_encoder: Any) -> Find:
    def run(index: ReTAGIndex, questions: list[str], graphs: list[list[bool]], **settings: int) -> list[list[str]]:
        finder = ExtractiveKeywords(SummarySentences(index, word_encoder), index.topics, **settings)
        return finder.find(word_encoder.queries(questions), torch.tensor(graphs))

    return run


@pytest.mark.parametrize("question", ["Who loved Lothair?", "Which cities lie at rivers?", "Trier"])
def test_keywords_against_naive_loop(question: str, retag_index: ReTAGIndex, word_encoder: Any, find: Find) -> None:
    expected = naive(retag_index, word_encoder, question, num_sentences=3)
    for count in (100, 2):
        found = find(retag_index, [question], [GENERAL], num_keywords=count, num_sentences=3, num_terms=0)
        assert found == [expected[:count]]


def test_terms_of_the_topics_come_first_and_in_turns(
    retag_index: ReTAGIndex, empty_retag_index: ReTAGIndex, find: Find
) -> None:
    questions = ["Trier"] * 4 + ["The river Rhine"]
    found = find(retag_index, questions, [GENERAL, PLACES, PEOPLE, BOTH, PLACES], num_keywords=5, num_terms=3)
    assert found[0][0] == "verdun"
    assert found[1][:2] == ["city", "river"]
    assert found[2][:2] == ["king", "loved"]
    assert found[3][:3] == ["city", "king", "river"]
    assert found[4][0] == "city"
    assert "river" not in found[4]
    assert all(len(words) == len(set(words)) <= 5 for words in found)
    assert find(empty_retag_index, ["Trier", "Trier"], [GENERAL, PLACES]) == [[], ["city", "river"]]


TOWNS = ("Metz", "Nancy", "Trier", "Verdun", "Reims", "Dijon", "Basel", "Worms")
WRITERS = ("Lothair", "Waldrada", "Teutberga", "Hincmar", "Gunther", "Adrian", "Engelberga", "Louis")
DOCUMENTS = [f"The town {a} lies near {b}. {a} trades with {TOWNS[i - 3]}." for i, (a, b) in enumerate(
    zip(TOWNS, TOWNS[1:] + TOWNS[:1], strict=True))]  # fmt: skip
DOCUMENTS += [f"Old {a} wrote letters to {b}. Old {b} answered {a}." for a, b in itertools.pairwise(WRITERS)]
Build = Callable[..., Pipeline]


@pytest.fixture
def build(tmp_path: Path, word_encoder: Any, name_extractor: Any) -> Build:
    def make(documents: list[str] = DOCUMENTS, **search: Any) -> Pipeline:
        graph = CorpusGraph.from_edges([f"d{i}" for i in range(len(documents))], documents, torch.zeros(0, 2))
        settings = ReTAGSettings(num_topics=2, summary_tokens=20, max_community=4)
        parts = {"folder": tmp_path, "tokenizer": WordTokenizer(), "extractor": name_extractor, "settings": settings}
        settings = ReTAGSearchSettings(**{"top_p": 2, **search})
        step = partial(ReTAGSearch, setup=ReTAGSetup(**parts), search=settings)
        encoded = graph.with_embedding(word_encoder.encode(documents))
        return Pipeline(encoded, steps=[step], budget=5, text_encoder=word_encoder, batch_queries=2)

    return make


ASKED = ["Which town trades with Trier?", "Who wrote letters to Hincmar?", "", "Adrian of Worms", "towns"]


def nodes(pipeline: Pipeline, encoder: Any, questions: list[str]) -> list[list[int]]:
    found = pipeline.retrieve(encoder.queries(questions)).ranking
    assert found.nodes.shape == (len(questions), pipeline.budget)
    return rows(found)


@pytest.mark.parametrize("search", [{}, {"use_topics": False}, {"dense_weight": 1.0}])
def test_documents_of_the_retrieved_summaries_by_cosine(search: Any, build: Build, word_encoder: Any) -> None:
    pipeline = build(**search)
    (step,) = pipeline._steps
    retrieved = step.retrieval.retrieve(word_encoder.queries(ASKED)).ranking
    sources = step._documents.tolist()
    for row, question in enumerate(ASKED):
        listed: set[int] = set()
        for node in retrieved.nodes[row].tolist():
            if node >= 0:
                community = step.retrieval.summaries.communities[node]
                listed |= set(sources[step._indptr[community] : step._indptr[community + 1]])
        cosines = (word_encoder.encode(DOCUMENTS) @ word_encoder.encode([question])[0]).tolist()
        expected = sorted(listed, key=lambda document: (-round(cosines[document], 6), document))[:5]
        assert nodes(pipeline, word_encoder, ASKED)[row] == expected
        assert bool(expected) == bool(question)


@pytest.mark.parametrize(("documents", "expected"), [([], []), (["Metz fell."], []), ([" ".join(DOCUMENTS)], [0])])
def test_hardly_a_corpus(documents: list[str], expected: list[int], build: Build, word_encoder: Any) -> None:
    found = nodes(build(documents), word_encoder, ["Did Metz fall?", ""])
    assert found == [expected, []]
    assert nodes(build(documents), word_encoder, []) == []


def test_a_language_model_finds_keywords_and_topics(
    retag_index: ReTAGIndex, word_encoder: Any, name_extractor: Any, scripted_model: Any, tmp_path: Path
) -> None:
    def reply(system: str, question: str) -> Any:
        if "Collection" in question:
            return {"keywords": ["Trier", "Reims"]} if "Where?" not in question else "unusable"
        return {"topic": {"towns": 2, "letters": 0}.get(question.rpartition("Question: ")[2], 3)}

    model, sentences = scripted_model(reply), SummarySentences(retag_index, word_encoder)
    made = {"folder": tmp_path, "tokenizer": WordTokenizer(), "extractor": name_extractor, "language_model": model}
    routed = {"routing": "language_model", "cache": tmp_path / "answers"}
    setup = ReTAGSetup(**made, language="llm", description="Old towns.", **routed)
    numbers = {"num_sentences": 1, "num_terms": 0}
    for _ in range(2):  # the second time from the cache
        finder = setup.keyword_finder(retag_index, sentences, num_keywords=1, **numbers)
        found = finder.find(word_encoder.queries(["Who?", "", "Where?"]), torch.tensor([BOTH, PLACES, GENERAL]))
        assert found == [["Trier"], [], []]
    assert "at most 1," in model.asked[0][0]
    assert [question for _, question in model.asked[:2]] == [
        "Collection: Old towns. Searched in: cities and rivers (city, river); kings who loved (king, loved)\n"
        "Question: Who?",
        "Collection: Old towns. Searched in: the whole collection\nQuestion: Where?",
    ]
    plain = ReTAGSetup(**made)
    assert isinstance(plain.keyword_finder(retag_index, sentences, num_keywords=3, **numbers), ExtractiveKeywords)
    assert plain.topic_classifier(retag_index) is None
    assert setup.keyword_finder(retag_index, sentences, num_keywords=0, **numbers) is None

    summaries, chosen = LevelSummaries(retag_index, 0), setup.topic_classifier(retag_index)
    retrieval = ReTAGRetrieval(summaries, ReTAGSearchSettings(top_p=2), classifier=chosen)
    num_asked = len(model.asked)
    graphs = retrieval.retrieve(word_encoder.queries(["towns", "letters", "", "no such topic"])).graphs
    assert graphs.tolist() == [PEOPLE, GENERAL, [False, False, False], GENERAL]
    general = ReTAGRetrieval(summaries, ReTAGSearchSettings(use_topics=False), classifier=chosen)
    assert general.retrieve(word_encoder.queries(["towns"])).graphs.tolist() == [GENERAL]
    assert len(model.asked) == num_asked + 3 + 1  # the topic that there is not is asked for again


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(ReTAGSettings, coverage=0.0), "`coverage` must"),
        (partial(ReTAGSearchSettings, top_p=0), "`top_p` must be a positive integer, got 0"),
        (
            partial(ReTAGSearchSettings, bm25_weight=0.0),
            "`bm25_weight` and `dense_weight` must be non-negative and not",
        ),
        (partial(ReTAGSetup, "", None, None, language="llm"), "`language_model` is required with language=llm and"),
    ],
)
def test_settings_out_of_range(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
