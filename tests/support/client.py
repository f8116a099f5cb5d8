"""Clients of an application in this process."""

import warnings

from graphrerank.serving.batching import Batcher
from graphrerank.serving.server import create_app
from graphrerank.serving.settings import ServiceSettings
from graphrerank.serving.standard_routes import RERANK

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # starlette asks for httpx2 where there is httpx only
    from fastapi.testclient import TestClient

__all__ = ["TestClient", "make_client"]


def make_client(base_url: str = "http://localhost:8000", **settings: object) -> TestClient:
    """Return a client of a service without engines."""
    chosen = ServiceSettings(**settings)  # type: ignore[arg-type]
    app = create_app([RERANK], Batcher({}, chosen.limits), chosen, info={"name": "a model"})
    return TestClient(app, base_url=base_url)
