"""Exported artifacts, and the HTTP service that loads them."""

from graphrerank.extras import importing

with importing("serve", "graphrerank.serving"):
    from graphrerank.serving.artifact import Artifact, load_artifact
    from graphrerank.serving.export import export_artifact
    from graphrerank.serving.limits import Limits
    from graphrerank.serving.rerank_engine import RerankEngine
    from graphrerank.serving.rerank_request import RerankRequest, RerankResponse
    from graphrerank.serving.server import Service, run
    from graphrerank.serving.settings import ServiceSettings

__all__ = [
    "Artifact",
    "Limits",
    "RerankEngine",
    "RerankRequest",
    "RerankResponse",
    "Service",
    "ServiceSettings",
    "export_artifact",
    "load_artifact",
    "run",
]
