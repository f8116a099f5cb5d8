"""Beside sentence-transformers' own ``CrossEncoder``, and where that library calls one."""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

from graphrerank.integrations.cross_encoder import GraphCrossEncoder
from tests.integrations.conftest import QUERY, TEXTS


def test_rank_takes_and_gives_what_a_cross_encoder_does(reranker):
    encoder = GraphCrossEncoder(reranker, edges=lambda texts: [(1, 2)])
    expected = reranker.rerank(QUERY, TEXTS, edges=[(1, 2)])
    found = encoder.rank(QUERY, TEXTS, top_k=3, return_documents=True, show_progress_bar=False)
    assert [row["corpus_id"] for row in found] == list(expected.ids[:3])
    assert [row["score"] for row in found] == pytest.approx(expected.probabilities[:3].tolist())
    assert [row["text"] for row in found] == [TEXTS[place] for place in expected.ids[:3]]
    assert encoder.rank(QUERY, []) == []
    theirs = list(inspect.signature(CrossEncoder.rank).parameters)[1:5]
    assert list(inspect.signature(GraphCrossEncoder.rank).parameters)[1:5] == theirs


def test_predict_scores_the_pairs_of_a_query_together(reranker):
    encoder = GraphCrossEncoder(reranker)
    pairs = [(query, text) for text in TEXTS for query in (QUERY, "phishing")]
    scores = encoder.predict(pairs, batch_size=2)
    for offset, query in enumerate((QUERY, "phishing")):
        expected = {row["corpus_id"]: row["score"] for row in encoder.rank(query, TEXTS)}
        assert scores[offset::2].tolist() == pytest.approx([expected[place] for place in range(4)])


def test_predict_takes_and_gives_the_forms_of_a_cross_encoder(reranker):
    encoder = GraphCrossEncoder(reranker)
    settings = {"batch_size": 8, "show_progress_bar": False, "activation_fn": None, "num_workers": 0}
    alone = encoder.predict((QUERY, TEXTS[2]), **settings)
    assert isinstance(alone, np.float32)
    assert alone == encoder.predict([[QUERY, TEXTS[2]]])[0] == encoder.predict([QUERY, TEXTS[2]])
    assert encoder.predict([]).shape == (0,)
    pairs = [(QUERY, text) for text in TEXTS]
    assert torch.equal(encoder.predict(pairs, convert_to_tensor=True), torch.from_numpy(encoder.predict(pairs)))


def test_in_their_evaluator(reranker, tmp_path):
    samples = [{"query": QUERY, "positive": [TEXTS[2]], "negative": [TEXTS[0], TEXTS[3]]}]
    evaluator = CrossEncoderRerankingEvaluator(samples, at_k=1, write_csv=False, show_progress_bar=False)
    encoder, told = GraphCrossEncoder(reranker), []
    encoder.model_card_data = SimpleNamespace(set_evaluation_metrics=lambda *given: told.append(given))
    assert evaluator(encoder)["mrr@1"] == 1.0
    assert len(told) == 1
