from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank import GraphReranker
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import parse_manifest
from graphrerank.operators.expand import HybridExpandRetriever
from tests.support.manifests import make_manifest

DIM = 8
ALL_NAMES = HybridExpandRetriever.feature_names


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Checkpoint]:
    def make(
        names: tuple[str, ...] = ALL_NAMES, *, choice: str = "hybrid", hybrid: bool | str = True, **arguments: Any
    ) -> Checkpoint:
        """A model of random weights and a manifest as training writes it."""
        arguments = {
            **{"features": "scores", "num_scores": len(names), "embedding_dim": DIM, "hidden_channels": 16},
            **{"projection_channels": 4, "heads": 2, "edge_features": True, **arguments},
        }
        torch.manual_seed(0)
        model = GATv2Reranker(**arguments)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        weights = {"bm25_weight": 0.4 if hybrid is True else hybrid, "dense_weight": 0.6} if hybrid else {}
        manifest = make_manifest(
            "gatv2_reranker",
            arguments,
            features=model.feature_names(names),
            encoder={"name": "fake", "fingerprint": "f" * 64, "dim": DIM},
            retriever={"choice": choice, "arguments": weights, "feature_names": list(names)},
        )
        return Checkpoint(model, parse_manifest(manifest, "somewhere"), Path("somewhere/model.safetensors"))

    return make


@pytest.fixture(scope="session")
def reranker(make_checkpoint: Callable[..., Checkpoint]) -> GraphReranker:
    return GraphReranker(make_checkpoint())


@pytest.fixture(scope="session", params=["scores", "paper", "full", "typed"])
def any_reranker(request: pytest.FixtureRequest, make_checkpoint: Callable[..., Checkpoint]) -> GraphReranker:
    if request.param == "typed":
        return GraphReranker(make_checkpoint(num_edge_types=5))
    return GraphReranker(make_checkpoint(features=request.param))
