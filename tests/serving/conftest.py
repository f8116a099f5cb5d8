from collections.abc import Callable

import pytest
from fastapi import FastAPI

from graphrerank.artifacts.artifact import Artifact, load_artifact
from graphrerank.artifacts.export import export_artifact
from graphrerank.serving.app import create_app
from graphrerank.serving.batching import Batcher
from graphrerank.serving.engines.rerank import RerankEngine
from graphrerank.serving.http_guard import RefusalLog
from graphrerank.serving.limits import Limits
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.standard_routes import RERANK_ROUTES
from tests.artifacts.conftest import _one_thread, make_checkpoint  # noqa: F401 # fixtures
from tests.support.encoders import HashEncoder
from tests.support.models import small_checkpoint

DIM = 8


@pytest.fixture(scope="session")
def encoder() -> HashEncoder:
    return HashEncoder(dim=DIM, fingerprint="f" * 64)


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A small model that reads edge weights."""
    folder = tmp_path_factory.mktemp("serving") / "artifact"
    return load_artifact(export_artifact(small_checkpoint(edge_features=True), folder))


@pytest.fixture(scope="session")
def make_app(artifact: Artifact, encoder: HashEncoder) -> Callable[..., FastAPI]:
    def make(
        limits: Limits | None = None, *, api_key: str | None = None, refusals: RefusalLog | None = None
    ) -> FastAPI:
        """The service's routes with an engine in the same process."""
        limits = limits or Limits()
        batcher = Batcher({"rerank": RerankEngine(artifact, encoder, limits=limits)}, limits)
        settings = ServiceSettings(host="0.0.0.0", api_key=api_key, allow_no_key=True, limits=limits)
        return create_app(RERANK_ROUTES, batcher, settings, info={}, refusals=refusals)

    return make
