"""Exported artifacts, and the HTTP service that answers from one."""

from graphrerank.serving.export import Artifact, export_artifact, load_artifact, parity_difference
from graphrerank.serving.service import RerankRequest, RerankService, create_app, serve_http

__all__ = [
    "Artifact",
    "RerankRequest",
    "RerankService",
    "create_app",
    "export_artifact",
    "load_artifact",
    "parity_difference",
    "serve_http",
]
