"""Classes of users without our bases work as they did; those with a base are not wrapped."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from graphrerank.core import Encoder, ModelInputs, PairEncoder, Queries, Ranking, Reranker, Retriever
from graphrerank.core.adapters import (
    as_encoder,
    as_pair_encoder,
    as_retriever,
    expands_along_edges,
    is_lookup,
    model_features,
    model_interface,
    needs_vectors,
    query_encoder,
)

INPUTS = ModelInputs(("base_features",))
RANKING = Ranking(torch.tensor([[0]]), torch.tensor([[1.0]]), torch.tensor([[[1.0]]]))


class BareRetriever:
    feature_names = ("base_score",)

    def __init__(self, graph: Any = None, **settings: Any) -> None:
        self.settings = settings

    def retrieve(self, queries: Queries) -> Ranking:
        return RANKING


class FullRetriever(BareRetriever):
    fingerprint = "file"
    is_lookup = True
    expands_along_edges = True

    @staticmethod
    def needs_vectors(*, dense: bool = True, **_: Any) -> bool:
        return dense


class BasedRetriever(BareRetriever, Retriever):
    pass


def test_a_retriever_without_the_base_has_its_defaults() -> None:
    bare, full = as_retriever(BareRetriever()), as_retriever(FullRetriever())
    based = BasedRetriever()
    assert as_retriever(based) is based
    for retriever in (bare, based):
        assert (retriever.fingerprint, retriever.is_lookup, is_lookup(retriever)) == ("", False, False)
    assert (full.fingerprint, full.is_lookup) == ("file", True)
    assert is_lookup(FullRetriever())
    for retriever in (bare, full, based):
        assert retriever.feature_names == ("base_score",)
        assert retriever.retrieve(Queries(["q"], ["text"])) is RANKING


@pytest.mark.parametrize(
    ("factory", "vectors", "edges"),
    [
        (BareRetriever, True, False),  # no partial: nothing is known
        (partial(BareRetriever), True, False),
        (partial(BasedRetriever, top_k=3), True, False),
        (partial(FullRetriever), True, True),
        (partial(FullRetriever, dense=False, top_k=3), False, True),
        (partial(lambda graph: BareRetriever(graph)), True, False),
    ],
)
def test_what_a_factory_of_retrievers_says(factory: Any, vectors: bool, edges: bool) -> None:
    assert needs_vectors(factory) is vectors
    assert expands_along_edges(factory) is edges


def test_a_retriever_must_retrieve() -> None:
    class Nothing(Retriever):
        feature_names = ("base_score",)

    with pytest.raises(TypeError, match="abstract method retrieve"):
        Nothing()


class BareEncoder:
    name, fingerprint = "bare", "bare-1"

    def encode(self, texts: list[str]) -> torch.Tensor:
        return torch.ones(len(texts), 1)


class FullEncoder(BareEncoder):
    name = "full"

    def __init__(self) -> None:
        self.for_queries = BareEncoder()
        self.counts = {"requests": 2, "cache_hits": 1}


class BasedEncoder(BareEncoder, Encoder):
    pass


def test_an_encoder_without_the_base_has_its_defaults() -> None:
    bare, full, based = as_encoder(BareEncoder()), as_encoder(FullEncoder()), BasedEncoder()
    assert as_encoder(based) is based
    for encoder in (bare, based):
        assert encoder.for_queries is encoder
        assert query_encoder(encoder) is encoder
        assert dict(encoder.counts) == {}
        encoder.count_cache_hits(3)
        assert dict(encoder.counts) == {}
        assert encoder.encode(["a", "b"]).shape == (2, 1)
    assert (full.for_queries.name, full.fingerprint) == ("bare", "bare-1")
    full.count_cache_hits(3)
    assert full.counts == {"requests": 2, "cache_hits": 4}


def test_an_encoder_has_no_default_fingerprint() -> None:
    """Two encoders without one would share their cached vectors."""

    class Nameless:
        def encode(self, texts: list[str]) -> torch.Tensor:
            raise AssertionError(texts)

    encoder = as_encoder(Nameless())
    assert encoder.name == "Nameless"
    with pytest.raises(ValueError, match=r"`encoder` must have a `fingerprint`, .* got Nameless"):
        _ = encoder.fingerprint


class BarePairEncoder:
    hidden_size, fingerprint = 2, "pairs"

    def encode(self, query_texts: list[str], passages: list[str]) -> torch.Tensor:
        return torch.ones(len(passages), 2)

    def head(self, vectors: torch.Tensor) -> torch.Tensor:
        return vectors.sum(-1)


class BasedPairEncoder(BarePairEncoder, PairEncoder):
    pass


def test_a_pair_encoder_without_the_base_has_its_defaults() -> None:
    bare, based = BarePairEncoder(), BasedPairEncoder()
    assert as_pair_encoder(based) is based
    for encoder, name in ((as_pair_encoder(bare), "BarePairEncoder"), (based, "BasedPairEncoder")):
        assert (encoder.hidden_size, encoder.fingerprint, encoder.name) == (2, "pairs", name)
        assert encoder.head(encoder.encode(["q"], ["p"])).tolist() == [2]
    bare.model = "folder/of/a/model"
    assert as_pair_encoder(bare).name == "folder/of/a/model"


class BareModel(nn.Module):
    inputs = INPUTS


class FullModel(nn.Module):
    trained_by, manifest_class = "experiment=mine", dict

    @staticmethod
    def inputs_of(*, wide: bool = False) -> ModelInputs:
        return INPUTS.with_edge_types() if wide else INPUTS

    def feature_names(self, score_names: list[str]) -> list[str]:
        return [*score_names, "more"]


class BasedModel(Reranker):
    inputs = INPUTS


class BasedModelOfSettings(Reranker):
    @classmethod
    def inputs_of(cls, *, wide: bool = False, **_: Any) -> ModelInputs:
        return INPUTS.with_edge_types() if wide else INPUTS


def test_what_is_known_of_a_model_before_it_is_built() -> None:
    for model_class in (BareModel, BasedModel):
        interface = model_interface(model_class)
        assert (interface.inputs_of(hidden_channels=3), interface.manifest_class, interface.trained_by) == (
            INPUTS,
            None,
            None,
        )
        assert model_features(model_class(), ["base_score"]) == ["base_score"]
    full = model_interface(FullModel)
    assert (full.manifest_class, full.trained_by) == (dict, "experiment=mine")
    for model_class in (FullModel, BasedModelOfSettings):
        interface = model_interface(model_class)
        assert [interface.inputs_of(wide=wide).reads_edge_types for wide in (False, True)] == [False, True]
    assert model_features(FullModel(), ["base_score"]) == ["base_score", "more"]
    for unknown in (nn.Linear, Reranker, print):
        assert model_interface(unknown).inputs_of is None


def test_a_based_reranker_scripts_like_any_module() -> None:
    class Linear(Reranker):
        def __init__(self) -> None:
            super().__init__()
            self.inputs = INPUTS
            self.score = nn.Linear(2, 1)

        def forward(self, base_features: torch.Tensor) -> torch.Tensor:
            return self.score(base_features).squeeze(1)

    model = Linear()
    features = torch.rand(3, 2)
    assert torch.equal(torch.jit.script(model)(features), model(features))
