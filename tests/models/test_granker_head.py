from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.granker_head import GRankerHead, TrainedHead, head_arguments
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.operators.classification_head import ClassificationHead
from graphrerank.operators.granker import smooth_vectors
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GRanker, STeX, UntilBudget
from graphrerank.pipelines.vector_search import VectorSearch
from tests.support.encoders import HashPairEncoder
from tests.support.manifests import make_manifest

HIDDEN = 8


def encoder_head(activation: str = "tanh", norm_eps: float | None = None) -> ClassificationHead:
    torch.manual_seed(0)
    head = ClassificationHead(HIDDEN, activation=activation, norm_eps=norm_eps)
    for parameter in head.parameters():
        nn.init.normal_(parameter, std=0.5)
    return head.eval()


def batch(num_nodes: int = 12, num_edges: int = 20, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    degree = torch.bincount(edges[1], minlength=num_nodes) + torch.randint(3, (num_nodes,), generator=generator)
    return torch.randn(num_nodes, HIDDEN, generator=generator), edges, degree


@pytest.mark.parametrize(("activation", "norm_eps"), [("tanh", None), ("gelu", 1e-5)])
@pytest.mark.parametrize("learn", [True, False])
def test_starts_as_the_frozen_granker(activation: str, norm_eps: float | None, learn: bool) -> None:
    head = encoder_head(activation, norm_eps)
    model = GRankerHead.from_head(head, smoothing=0.2, learn_smoothing=learn, dropout=0.5).eval()
    vectors, edges, degree = batch()
    torch.testing.assert_close(model(vectors, edges, degree), head(smooth_vectors(vectors, edges, degree, 0.2)))
    assert not torch.allclose(model(vectors, edges, degree), head(vectors))  # the graph matters


def test_without_smoothing_it_is_the_cross_encoder() -> None:
    head = encoder_head()
    vectors, edges, degree = batch()
    assert torch.equal(GRankerHead.from_head(head, smoothing=0.0).eval()(vectors, edges, degree), head(vectors))


def train(model: GRankerHead, parameters: list[nn.Parameter]) -> list[float]:
    """Fit what the neighbours alone would say, under the encoder's own head."""
    vectors, edges, degree = batch(30, 60)
    wanted = model.head(smooth_vectors(vectors, edges, degree, 1.0)).detach()
    relevance = (wanted > wanted.quantile(0.8)).float()[None]
    optimizer = torch.optim.Adam(parameters, lr=0.05)
    losses = []
    for _ in range(60):
        scores = model(vectors, edges, degree)[None]
        loss = listwise_softmax_cross_entropy(scores, relevance, torch.ones_like(scores, dtype=torch.bool))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_training_moves_the_head_and_not_the_encoders_own() -> None:
    head = encoder_head()
    before = {name: weight.clone() for name, weight in head.state_dict().items()}
    model = GRankerHead.from_head(head)
    losses = train(model, list(model.parameters()))
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(weight, before[name]) for name, weight in head.state_dict().items())
    trained = model.head.state_dict()
    assert not any(torch.equal(trained[name], before[name]) for name in ("dense.weight", "dense.bias", "out.weight"))


def test_smoothing_is_learned_where_neighbours_know() -> None:
    model = GRankerHead.from_head(encoder_head(), learn_smoothing=True)
    assert model.smoothing_logit is not None
    losses = train(model, [model.smoothing_logit])
    assert losses[-1] < losses[0]
    assert 0.4 < model.smoothing_logit.sigmoid() < 1


def test_dropout_is_of_training_alone() -> None:
    model = GRankerHead.from_head(encoder_head(), dropout=0.5)
    arguments = batch()
    assert not torch.equal(model(*arguments), model(*arguments))
    model.eval()
    assert torch.equal(model(*arguments), model(*arguments))


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize(("activation", "norm_eps"), [("tanh", None), ("silu", 1e-5)])
def test_scripted_equals_eager(learn: bool, activation: str, norm_eps: float | None) -> None:
    model = GRankerHead.from_head(encoder_head(activation, norm_eps), learn_smoothing=learn).eval()
    scripted = torch.jit.script(model)
    with torch.inference_mode():
        for num_nodes, num_edges in [(1, 0), (12, 20), (200, 2000), (12, 0)]:
            for _ in range(2):
                arguments = batch(num_nodes, num_edges)
                torch.testing.assert_close(scripted(*arguments), model(*arguments), atol=1e-6, rtol=0)


def test_relabelling_nodes_permutes_scores() -> None:
    model = GRankerHead.from_head(encoder_head()).eval().double()
    vectors, edges, degree = batch()
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    place = torch.argsort(order)
    torch.testing.assert_close(
        model(vectors[order].double(), place[edges], degree[order]), model(vectors.double(), edges, degree)[order]
    )


def test_checkpoint_round_trip(tmp_path: Path) -> None:
    head = encoder_head("gelu", 1e-5)
    model = GRankerHead.from_head(head, learn_smoothing=True).eval()
    assert model.smoothing_logit is not None
    nn.init.constant_(model.smoothing_logit, 0.3)
    arguments = head_arguments(head) | {"learn_smoothing": True}
    write_manifest(tmp_path, make_manifest(model_name(GRankerHead), arguments))
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path)
    assert loaded.manifest.model.name == "granker_head"
    assert torch.equal(loaded.model(*batch()), model(*batch()))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"smoothing": 1.1}, r"`smoothing` must lie in \[0, 1\], got 1.1"),
        ({"smoothing": 0.0, "learn_smoothing": True}, "`smoothing` must lie between 0 and 1 where it is learned"),
        ({"dropout": 1.0}, r"`dropout` must lie in \[0, 1\), got 1.0"),
        ({"activation": "elu"}, "`activation` must be one of .*, got 'elu'"),
        ({"hidden_size": 0}, "`hidden_size` must be a positive integer, got 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        GRankerHead(**arguments)  # type: ignore[arg-type]


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
