"""Within PyTerrier's own experiments and adaptive retrieval."""

import pytest

pytest.importorskip("pyterrier", reason="pyterrier is optional")
pytest.importorskip("pyterrier_adaptive", reason="pyterrier-adaptive is optional")
import pandas as pd
import pyterrier as pt
import pyterrier_adaptive

from graphrerank.integrations.pyterrier import EdgeGraph, GraphRerankTransformer
from tests.integrations.conftest import QUERY, TEXTS

DOCNOS = list("abcd")
TEXT_OF = dict(zip(DOCNOS, TEXTS, strict=True))
SCORES = [0.9, 0.3, 0.2, 0.1]


def frame(queries=("1",)):
    rows = [
        (q, QUERY, d, TEXT_OF[d], s, r) for q in queries for r, (d, s) in enumerate(zip(DOCNOS, SCORES, strict=True))
    ]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"])


def test_in_an_experiment_beside_the_retriever(reranker):
    graph = EdgeGraph([*DOCNOS, "e"], [(1, 2), (0, 4), (2, 2)])
    ours = pt.Transformer.from_df(frame(("1", "2"))) >> GraphRerankTransformer(reranker, corpus_graph=graph)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": [QUERY] * 2})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["c", "c"], "label": [1, 1]})
    table = pt.Experiment([pt.Transformer.from_df(frame(("1", "2"))), ours], topics, qrels, ["recip_rank"])
    expected = reranker.rerank(QUERY, TEXTS, scores=SCORES, edges=[(1, 2)], ids=DOCNOS)
    assert table["recip_rank"].tolist() == pytest.approx([1 / 3, 1 / (1 + expected.ids.index("c"))])
    ranked = ours(topics)
    assert ranked[ranked.qid == "2"].docno.tolist() == list(expected.ids)
    assert ranked[ranked.qid == "2"]["rank"].tolist() == [0, 1, 2, 3]


def test_adaptive_retrieval_reaches_what_no_list_held(reranker):
    graph = EdgeGraph(DOCNOS, [(3, 2), (0, 3)])
    scorer = GraphRerankTransformer(reranker, texts=TEXT_OF, corpus_graph=graph, reads_scores=False)
    first = frame().query("docno in ('a', 'd')")
    found = pyterrier_adaptive.GAR(scorer, graph, num_results=3, batch_size=1)(first)
    assert set(found.docno) == {"a", "c", "d"}


def test_bad_frames_are_named(reranker):
    ranker = GraphRerankTransformer(reranker, texts={"a": "x"})
    with pytest.raises(ValueError, match=r"\['score'\] are missing"):
        ranker(frame().drop(columns="score"))
    with pytest.raises(ValueError, match=r"`texts` must have every document .* 'b' is missing"):
        ranker(frame().drop(columns="text"))
    with pytest.raises(
        ValueError, match=r"`edges` must be pairs of positions of the 4 documents, got \(1, 4\) at index 0"
    ):
        EdgeGraph(DOCNOS, [(1, 4)])
    assert len(ranker(frame().head(0))) == 0


@pytest.mark.parametrize("missing", [None, float("nan"), " "])
def test_documents_without_a_text_come_last(reranker, missing):
    with pytest.warns(UserWarning, match="blank passages, which rank last: 1"):
        ranked = GraphRerankTransformer(reranker)(frame().assign(text=[missing, *TEXTS[1:]]))
    assert ranked.docno.tolist()[-1] == "a"


def test_neighbours_by_weight():
    graph = EdgeGraph(DOCNOS, [(0, 1), (2, 0), (1, 0)], [1.0, 3.0, 2.0])
    places, weights = graph.neighbours(0, weights=True)
    assert (places.tolist(), weights.tolist()) == ([2, 1], [3.0, 2.0])
    assert graph.neighbours("b") == ["a"]
