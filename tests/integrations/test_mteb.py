"""A reranking task of MTEB, from a local data set, judged by MTEB itself."""

import pytest

pytest.importorskip("mteb", reason="mteb is optional")
import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.models_protocols import SearchProtocol

from graphrerank.integrations.mteb import GraphRerankSearch
from tests.integrations.conftest import QUERY, TEXTS

QUERIES = {"q1": QUERY, "q2": "a phishing mail"}
DOCUMENTS = list("abcd")


class Task(AbsTaskRetrieval):
    metadata = TaskMetadata(
        name="LocalReranking",
        description="A task of this test",
        reference=None,
        dataset={"path": "local", "revision": "1"},
        type="Reranking",
        category="t2t",
        modalities=["text"],
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
        date=None,
        domains=None,
        task_subtypes=None,
        license=None,
        annotations_creators=None,
        dialect=None,
        sample_creation=None,
        bibtex_citation=None,
    )

    def load_data(self, **ignored):
        rows = zip(DOCUMENTS, TEXTS, strict=True)
        self.dataset = {
            "default": {
                "test": {
                    "corpus": Dataset.from_list([{"id": i, "title": "", "text": text} for i, text in rows]),
                    "queries": Dataset.from_list([{"id": i, "text": text} for i, text in QUERIES.items()]),
                    "relevant_docs": {"q1": {"c": 1}, "q2": {"d": 1}},
                    "top_ranked": {"q1": DOCUMENTS, "q2": DOCUMENTS[::-1]},
                }
            }
        }
        self.data_loaded = True


def test_a_task_runs_offline(reranker):
    model = GraphRerankSearch(reranker, edges=lambda documents: [(0, 1)])
    assert isinstance(model, SearchProtocol)
    result = mteb.evaluate(model, [Task()], cache=None, co2_tracker=False, show_progress_bar=False)
    places = []
    for query, documents, relevant in (("q1", DOCUMENTS, "c"), ("q2", DOCUMENTS[::-1], "d")):
        texts = [TEXTS[DOCUMENTS.index(document)] for document in documents]
        places.append(reranker.rerank(QUERIES[query], texts, edges=[(0, 1)], ids=documents).ids.index(relevant))
    scores = result.task_results[0].scores["test"][0]
    assert scores["mrr_at_10"] == pytest.approx(sum(1 / (1 + place) for place in places) / 2, abs=1e-5)


def test_what_a_task_does_not_list_is_refused(reranker):
    model = GraphRerankSearch(reranker)
    model.index([{"id": "a", "text": "x"}])
    with pytest.raises(ValueError, match="`top_ranked` must be given"):
        model.search([{"id": "q", "text": "x"}], top_k=10)
    with pytest.raises(ValueError, match="must name documents of the corpus, got 'b' for query 'q'"):
        model.search([{"id": "q", "text": "x"}], top_k=10, top_ranked={"q": ["a", "b"]})
