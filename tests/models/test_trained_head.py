from functools import partial
from typing import Any

import pytest
import torch

from graphrerank.models.granker_head import GRankerHead
from graphrerank.models.trained_head import TrainedHead
from graphrerank.operators.classification_head import ClassificationHead
from graphrerank.pipelines.granker import GRanker
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.stex import STeX
from graphrerank.pipelines.until_budget import UntilBudget
from graphrerank.pipelines.vector_search import VectorSearch
from tests.support.encoders import HashPairEncoder


class TanhEncoder(HashPairEncoder):
    """With a head of transformers' form."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.classifier = ClassificationHead(self.hidden_size).eval()

    def head(self, vectors: torch.Tensor) -> torch.Tensor:
        return self.classifier(vectors).detach()


def steps() -> list[Any]:
    return [
        partial(VectorSearch, top_k=10),
        GRanker,
        partial(UntilBudget, steps=[partial(STeX, batch=10), GRanker]),
    ]


def test_the_encoders_own_head_as_a_trained_one_changes_nothing(make_corpus: Any, make_queries: Any) -> None:
    graph, queries, encoder = make_corpus(), make_queries(), TanhEncoder()
    settings = {"steps": steps(), "budget": 35, "pair_encoder": encoder}
    frozen = Pipeline(graph, **settings).retrieve(queries)
    head = TrainedHead(GRankerHead.from_head(encoder.classifier, smoothing=0.2).eval(), encoder.fingerprint)
    same = Pipeline(graph, **settings, head=head).retrieve(queries)
    assert torch.equal(same.ranking.nodes, frozen.ranking.nodes)
    torch.testing.assert_close(same.ranking.scores, frozen.ranking.scores)


def test_a_trained_head_decides_what_is_retrieved(make_corpus: Any, make_queries: Any) -> None:
    graph, queries, encoder = make_corpus(), make_queries(), TanhEncoder()
    settings = {"steps": steps(), "budget": 35, "pair_encoder": encoder}
    model = GRankerHead.from_head(encoder.classifier, smoothing=0.2).eval()
    with torch.no_grad():
        model.head.out.weight.neg_()
    other = Pipeline(graph, **settings, head=TrainedHead(model, encoder.fingerprint)).retrieve(queries)
    assert not torch.equal(
        other.ranking.nodes.sort().values, Pipeline(graph, **settings).retrieve(queries).ranking.nodes.sort().values
    )
    assert other.num_encodings.tolist() == [35] * 7


def test_a_head_of_another_cross_encoder_is_refused(make_corpus: Any) -> None:
    head = TrainedHead(GRankerHead(hidden_size=4), "another")
    with pytest.raises(ValueError, match="`head` reads vectors of the cross-encoder another, `pair_encoder` is hash"):
        Pipeline(make_corpus(), steps=steps(), pair_encoder=HashPairEncoder(), head=head)
