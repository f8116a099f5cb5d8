from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.losses import listwise_softmax_cross_entropy
from graphrerank.models.checkpoint import load_checkpoint, save_weights
from graphrerank.models.granker import GRankerHead, TrainedHead, frozen_grankers, head_arguments
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.operators.cross_encoder import ClassificationHead, CrossEncoder
from graphrerank.operators.granker import smooth_vectors
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.steps import GRanker, STeX, UntilBudget, VectorSearch
from tests.operators.test_cross_encoder import PASSAGES, QUERIES, build
from tests.support.encoders import HashPairEncoder
from tests.support.manifests import make_manifest
from tests.support.models import randomised

HIDDEN = 8
EDGES = torch.tensor([[1, 2, 0, 3], [0, 0, 2, 1]])  # the last node has no neighbour
DEGREE = torch.tensor([2, 1, 4, 3, 0])


def encoder_head(activation: str = "tanh", norm_eps: float | None = None) -> ClassificationHead:
    head: ClassificationHead = randomised(ClassificationHead(HIDDEN, activation=activation, norm_eps=norm_eps), std=0.5)
    return head


def from_head(head: ClassificationHead, **arguments: Any) -> GRankerHead:
    of_head = {"hidden_size": head.hidden_size, "activation": head.activation, "norm_eps": head.norm_eps}
    model = GRankerHead(**of_head, **arguments)
    model.head.load_state_dict(head.state_dict())
    return model


def batch(num_nodes: int = 12, num_edges: int = 20, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
    edges = edges[:, edges[0] != edges[1]]
    edges = torch.unique(torch.cat([edges, edges.flip(0)], dim=1), dim=1)
    degree = torch.bincount(edges[1], minlength=num_nodes) + torch.randint(3, (num_nodes,), generator=generator)
    return torch.randn(num_nodes, HIDDEN, generator=generator), edges, degree


@pytest.mark.parametrize(("activation", "norm_eps"), [("tanh", None), ("gelu", 1e-5)])
@pytest.mark.parametrize("learn", [True, False])
def test_the_head_starts_as_the_frozen_granker(activation: str, norm_eps: float | None, learn: bool) -> None:
    head = encoder_head(activation, norm_eps)
    model = from_head(head, smoothing=0.2, learn_smoothing=learn, dropout=0.5).eval()
    vectors, edges, degree = batch()
    torch.testing.assert_close(model(vectors, edges, degree), head(smooth_vectors(vectors, edges, degree, 0.2)))
    assert not torch.allclose(model(vectors, edges, degree), head(vectors))  # the graph matters
    cross_encoder = from_head(head, smoothing=0.0).eval()
    assert torch.equal(cross_encoder(vectors, edges, degree), head(vectors))


@pytest.mark.parametrize("learn", [False, True])  # all weights, or the smoothing alone
def test_training_moves_the_head_and_not_the_encoders_own(learn: bool) -> None:
    """Fit what the neighbours alone would say, under the encoder's own head."""
    head, (vectors, edges, degree) = encoder_head(), batch(30, 60)
    before = {name: weight.clone() for name, weight in head.state_dict().items()}
    model = from_head(head, learn_smoothing=learn)
    wanted = model.head(smooth_vectors(vectors, edges, degree, 1.0)).detach()
    relevance = (wanted > wanted.quantile(0.8)).float()[None]
    optimizer = torch.optim.Adam([model.smoothing_logit] if learn else model.parameters(), lr=0.05)
    losses = []
    for _ in range(60):
        scores = model(vectors, edges, degree)[None]
        loss = listwise_softmax_cross_entropy(scores, relevance, torch.ones_like(scores, dtype=torch.bool))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < (1.0 if learn else 0.5) * losses[0]
    assert all(torch.equal(weight, before[name]) for name, weight in head.state_dict().items())
    assert not learn or 0.4 < model.smoothing_logit.sigmoid() < 1  # neighbours know


@pytest.mark.parametrize("learn", [True, False])
@pytest.mark.parametrize(("activation", "norm_eps"), [("tanh", None), ("silu", 1e-5)])
def test_scripted_equals_eager(learn: bool, activation: str, norm_eps: float | None) -> None:
    model = from_head(encoder_head(activation, norm_eps), learn_smoothing=learn).eval()
    scripted = torch.jit.script(model)
    with torch.inference_mode():
        for num_nodes, num_edges in [(1, 0), (12, 20), (200, 2000), (12, 0)]:
            for _ in range(2):
                arguments = batch(num_nodes, num_edges)
                torch.testing.assert_close(scripted(*arguments), model(*arguments), atol=1e-6, rtol=0)


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


def test_a_trained_head_decides_what_is_retrieved(make_corpus: Any, make_queries: Any) -> None:
    graph, queries, encoder = make_corpus(), make_queries(), TanhEncoder()

    def retrieve(**head: Any) -> Any:
        return Pipeline(graph, steps=steps(), budget=35, pair_encoder=encoder, **head).retrieve(queries)

    model = from_head(encoder.classifier, smoothing=0.2).eval()
    frozen, same = retrieve(), retrieve(head=TrainedHead(model, encoder.fingerprint))
    assert torch.equal(same.ranking.nodes, frozen.ranking.nodes)  # the encoder's own head changes nothing
    torch.testing.assert_close(same.ranking.scores, frozen.ranking.scores)
    with torch.no_grad():
        model.head.out.weight.neg_()
    other = retrieve(head=TrainedHead(model, encoder.fingerprint))
    assert not torch.equal(other.ranking.nodes.sort().values, frozen.ranking.nodes.sort().values)
    assert other.num_encodings.tolist() == [35] * 7


def test_a_head_of_another_cross_encoder_is_refused(make_corpus: Any) -> None:
    head = TrainedHead(GRankerHead(hidden_size=4), "another")
    with pytest.raises(ValueError, match="`head` must be trained on the vectors of `pair_encoder` hash"):
        Pipeline(make_corpus(), steps=steps(), pair_encoder=HashPairEncoder(), head=head)


def test_checkpoint(tmp_path: Path) -> None:
    encoder = CrossEncoder(build("modernbert-mean", tmp_path / "encoder"), max_length=36, device="cpu")
    arguments = {**head_arguments(encoder), "smoothing": 0.4, "learn_smoothing": True}
    model = GRankerHead(**arguments).eval()
    model.start_from(encoder)
    vectors = encoder.encode(QUERIES, PASSAGES)
    frozen = frozen_grankers(encoder)["granker"].eval()
    assert torch.equal(frozen(vectors, EDGES, DEGREE), encoder.head(smooth_vectors(vectors, EDGES, DEGREE, 0.2)))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    write_manifest(tmp_path, make_manifest(model_name(type(model)), arguments))
    save_weights(tmp_path, model)
    loaded = load_checkpoint(tmp_path)
    assert torch.equal(loaded.model(vectors, EDGES, DEGREE), model(vectors, EDGES, DEGREE))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"smoothing": 1.1}, r"`smoothing` must lie in \[0, 1\], got 1.1"),
        ({"smoothing": 0.0, "learn_smoothing": True}, "`smoothing` must be above 0 and below 1 if it is learned"),
        ({"dropout": 1.5}, r"`dropout` must lie in \[0, 1\], got 1.5"),
        ({"activation": "elu"}, "`activation` must be one of .*, got 'elu'"),
        ({"hidden_size": 0}, "`hidden_size` must be a positive integer, got 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        GRankerHead(**arguments)
