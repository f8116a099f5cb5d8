import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.text import WordTokenizer
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings
from graphrerank_papers.retag.retrieval import (
    ExtractiveKeywords,
    LevelSummaries,
    ReTAGRetrieval,
    ReTAGSearchSettings,
    SummarySentences,
)
from graphrerank_papers.retag.search import ReTAGSearch, ReTAGSetup

pytest.importorskip("graspologic_native", reason="graspologic-native is optional")

TOWNS = ("Metz", "Nancy", "Trier", "Verdun", "Reims", "Dijon", "Basel", "Worms")
PEOPLE = ("Lothair", "Waldrada", "Teutberga", "Hincmar", "Gunther", "Adrian", "Engelberga", "Louis")
DOCUMENTS = [f"The town {a} lies near {b}. {a} trades with {TOWNS[i - 3]}." for i, (a, b) in enumerate(
    zip(TOWNS, TOWNS[1:] + TOWNS[:1], strict=True))]  # fmt: skip
DOCUMENTS += [f"Old {a} wrote letters to {b}. Old {b} answered {a}." for a, b in itertools.pairwise(PEOPLE)]
Build = Callable[..., Pipeline]


@pytest.fixture
def build(tmp_path: Path, word_encoder: Any, name_extractor: Any) -> Build:
    def make(
        documents: list[str] = DOCUMENTS, *, budget: int = 5, search: Any = None, setup: Any = None, **settings: Any
    ) -> Pipeline:
        graph = CorpusGraph.from_edges([f"d{i}" for i in range(len(documents))], documents, torch.zeros(0, 2))
        made = ReTAGSetup(
            folder=tmp_path / "index",
            tokenizer=WordTokenizer(),
            extractor=name_extractor,
            settings=ReTAGSettings(num_topics=2, summary_tokens=20, max_community=4),
            **(setup or {}),
        )
        step = partial(
            ReTAGSearch, setup=made, search=ReTAGSearchSettings(**{"top_p": 2, **(search or {})}), **settings
        )
        encoded = graph.with_embedding(word_encoder.encode(documents))
        return Pipeline(encoded, steps=[step], budget=budget, text_encoder=word_encoder, batch_queries=2)

    return make


QUESTIONS = ["Which town trades with Trier?", "Who wrote letters to Hincmar?", "", "Adrian of Worms", "towns"]


def nodes(pipeline: Pipeline, encoder: Any, questions: list[str]) -> list[list[int]]:
    found = pipeline.retrieve(encoder.queries(questions)).ranking
    assert found.nodes.shape == (len(questions), pipeline.budget)
    return [[node for node in row if node >= 0] for row in found.nodes.tolist()]


@pytest.mark.parametrize("search", [{}, {"use_topics": False}, {"dense_weight": 1.0}])
def test_documents_of_the_retrieved_summaries_by_cosine(search: Any, build: Build, word_encoder: Any) -> None:
    pipeline = build(search=search)
    (step,) = pipeline._steps
    assert isinstance(step, ReTAGSearch)
    retrieved = step.retrieval.retrieve(word_encoder.queries(QUESTIONS)).ranking
    sources = step._documents.tolist()
    for row, question in enumerate(QUESTIONS):
        listed: set[int] = set()
        for node in retrieved.nodes[row].tolist():
            if node >= 0:
                community = step.retrieval.summaries.communities[node]
                listed |= set(sources[step._indptr[community] : step._indptr[community + 1]])
        cosines = (word_encoder.encode(DOCUMENTS) @ word_encoder.encode([question])[0]).tolist()
        expected = sorted(listed, key=lambda document: (-round(cosines[document], 6), document))[:5]
        assert nodes(pipeline, word_encoder, QUESTIONS)[row] == expected
        assert bool(expected) == bool(question)


@pytest.mark.parametrize(
    ("documents", "expected"),
    [([], []), (["nothing with a name"], []), (["Metz fell."], []), ([" ".join(DOCUMENTS)], [0])],
)
def test_hardly_a_corpus(documents: list[str], expected: list[int], build: Build, word_encoder: Any) -> None:
    found = nodes(build(documents), word_encoder, ["Did Metz fall?", ""])
    assert found == [expected, []]
    assert nodes(build(documents), word_encoder, []) == []


def test_a_language_model_finds_keywords_and_topics(
    retag_index: ReTAGIndex, word_encoder: Any, name_extractor: Any, scripted_model: Any, tmp_path: Path
) -> None:
    def reply(system: str, question: str) -> Any:
        if "Collection" in question:
            assert question == "Collection: Old towns. Searched in: the whole collection\nQuestion: towns"
            return {"keywords": ["Trier"]}
        return {"topic": 2 if "Question: towns" in question else 0}

    model, sentences = scripted_model(reply), SummarySentences(retag_index, word_encoder)
    made = {"folder": tmp_path, "tokenizer": WordTokenizer(), "extractor": name_extractor, "language_model": model}
    setup = ReTAGSetup(
        **made, language="llm", cache=tmp_path / "answers", description="Old towns.", routing="language_model"
    )
    numbers = {"num_sentences": 1, "num_terms": 0}
    for _ in range(2):  # the second time from the cache
        finder = setup.keyword_finder(retag_index, sentences, num_keywords=3, **numbers)
        assert finder is not None
        assert finder.find(word_encoder.queries(["towns"]), torch.tensor([[True, False, False]])) == [["Trier"]]
    assert len(model.asked) == 1
    plain = ReTAGSetup(**made)
    assert isinstance(plain.keyword_finder(retag_index, sentences, num_keywords=3, **numbers), ExtractiveKeywords)
    assert plain.topic_classifier(retag_index) is None
    assert setup.keyword_finder(retag_index, sentences, num_keywords=0, **numbers) is None

    summaries, chosen = LevelSummaries(retag_index, 0), setup.topic_classifier(retag_index)
    retrieval = ReTAGRetrieval(summaries, ReTAGSearchSettings(top_p=2), classifier=chosen)
    graphs = retrieval.retrieve(word_encoder.queries(["towns", "letters", ""])).graphs
    assert graphs.tolist() == [[False, False, True], [True, False, False], [False, False, False]]
    general = ReTAGRetrieval(summaries, ReTAGSearchSettings(use_topics=False), classifier=chosen)
    assert general.retrieve(word_encoder.queries(["towns"])).graphs.tolist() == [[True, False, False]]
    assert len(model.asked) == 1 + 2


@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ({"language": "latin"}, r"`language` must be one of \['extractive', 'llm'\], got 'latin'"),
        ({"routing": "any"}, r"`routing` must be one of \['similarity', 'language_model'\], got 'any'"),
        ({"routing": "language_model"}, "`language_model` must be given for language=llm and"),
    ],
)
def test_setups_that_do_not_fit(setup: Any, message: str, build: Build) -> None:
    with pytest.raises(ValueError, match=message):
        build(setup=setup)
