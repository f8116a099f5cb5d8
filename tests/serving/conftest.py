from collections.abc import Callable

import pytest
import torch
from fastapi import FastAPI

from graphrerank.artifacts.artifact import Artifact, load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.cli.http_service import RERANK, TEI
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.serving.batches import Batcher
from graphrerank.serving.limits import Limits
from graphrerank.serving.rerank_engine import RerankEngine
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from tests.support.encoders import HashEncoder
from tests.support.models import small_checkpoint

DIM = 8
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
    return small_checkpoint


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
