from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fastapi import FastAPI

from graphrerank.cli.http_service import RERANK, TEI
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import parse_manifest
from graphrerank.serving.artifact import Artifact, load_artifact
from graphrerank.serving.batches import Batcher
from graphrerank.serving.export import export_artifact
from graphrerank.serving.limits import Limits
from graphrerank.serving.rerank_engine import RerankEngine
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from tests.support.encoders import HashEncoder

DIM = 8
NAMES = ["base_score", "bm25_score", "dense_score"]
SMALL = {"num_layers": 1, "restart_prob": 0.9}  # one step of smoothing less to trace for each step less
TYPED = {**SMALL, "edge_features": True, "num_edge_types": 5, "num_words": 1, "pair_head": True}


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def encoder() -> HashEncoder:
    return HashEncoder(dim=DIM, fingerprint="f" * 64)


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[..., Checkpoint]:
    def make(*, model_class: type[GATv2Reranker] = GATv2Reranker, seed: int = 0, **arguments: Any) -> Checkpoint:
        """A model of random weights, also where a fresh one has zeros, and a manifest as training writes it."""
        arguments = {"embedding_dim": DIM, "hidden_channels": 16, "projection_channels": 4, "heads": 2, **arguments}
        torch.manual_seed(seed)
        model = model_class(**arguments).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.3)
        manifest = {
            "name": "test-model",
            "model": {"name": "gatv2_reranker", "arguments": arguments},
            "features": model.feature_names(NAMES),
            "encoder": {"choice": "fake", "name": "hash", "fingerprint": "f" * 64, "dim": DIM},
            "data": {"choice": "cats", "fingerprint": "c" * 64},
            "operators": {"gcs": 0.5, "ppr": 0.5},
            "retriever": {
                "choice": "hybrid",
                "arguments": {"top_k": 100, "bm25_weight": 0.4, "dense_weight": 0.6},
                "feature_names": NAMES,
            },
            "candidate_depth": 100,
        }
        return Checkpoint(model, parse_manifest(manifest, "somewhere"), Path("model.safetensors"))

    return make


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, make_checkpoint: Callable[..., Checkpoint]) -> Artifact:
    """A small model that reads edge weights."""
    folder = tmp_path_factory.mktemp("serving") / "artifact"
    return load_artifact(export_artifact(make_checkpoint(edge_features=True), folder))


@pytest.fixture(scope="session")
def make_app(artifact: Artifact, encoder: HashEncoder) -> Callable[..., FastAPI]:
    def make(limits: Limits | None = None, *, api_key: str | None = None) -> FastAPI:
        """The service's routes with an engine in the same process."""
        limits = limits or Limits()
        batcher = Batcher({"rerank": RerankEngine(artifact, encoder, limits=limits)}, limits)
        settings = ServiceSettings(host="0.0.0.0", api_key=api_key, allow_no_key=True, limits=limits)
        return create_app([RERANK, TEI], batcher, settings, info={})

    return make
