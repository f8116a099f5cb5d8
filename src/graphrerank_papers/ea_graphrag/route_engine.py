"""Serve a complexity adapter: score how much queries need the graph, and route them."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.pipelines.router import ROUTES, choose_routes
from graphrerank.serving.engine import Check, Engine, EngineFactory
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.routes import Route
from graphrerank.serving.schemas.requests import QueryRequest
from graphrerank_papers.ea_graphrag.complexity_adapter import ThresholdsEntry
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer


class RouteRequest(QueryRequest):
    """Body of ``POST /route``: a query that is not blank."""


class RouteResponse(BaseModel):
    """Response of ``POST /route``."""

    #: Id of the request, as in the logs.
    id: str
    #: Complexity score s(q) in [0, 1]. Higher scores favour graph retrieval.
    score: float
    #: One of ``dense``, ``graph`` and ``fusion``.
    route: str
    #: Thresholds of the adapter.
    thresholds: ThresholdsEntry


class RouteEngine(Engine[RouteRequest]):
    """Score and route the queries of a batch of requests.

    Args:
        scorer: Scorer with the adapter and its thresholds.
    """

    def __init__(self, scorer: AdapterScorer) -> None:
        self._scorer = scorer

    def answer(self, jobs: Mapping[str, RouteRequest], check: Check = lambda: None) -> dict[str, RouteResponse]:
        """Route the queries of a batch of requests.

        Args:
            jobs: Requests by id.
            check: Not used, because a batch takes milliseconds.

        Returns:
            Responses by request id.
        """
        low, high = self._scorer.low, self._scorer.high
        with STAGE_SECONDS.labels("route").time():
            scores = self._scorer.score([request.query for request in jobs.values()])
        routes = choose_routes(scores, low, high)
        thresholds = ThresholdsEntry(low=low, high=high)
        return {
            uid: RouteResponse(id=uid, score=score, route=ROUTES[route], thresholds=thresholds)
            for uid, score, route in zip(jobs, scores.tolist(), routes.tolist(), strict=True)
        }

    def warm_up(self) -> None:
        """Load the parser by routing a dummy query."""
        self.answer({"first": RouteRequest(query="what warms up?")})


def load_route_engine(folder: Path, format_name: str | None, stanza_folder: str | None) -> RouteEngine:
    """Load the engine of an adapter's artifact. Called in a worker.

    Args:
        folder: Folder of the artifact.
        format_name: Format of the model to load. If None, the default format is loaded.
        stanza_folder: Folder of Stanza's models, for an adapter trained with ``syntax: stanza``. If None, Stanza's
            default folder is used.

    Returns:
        Engine with the loaded adapter.
    """
    artifact = load_artifact(folder, format_name)
    checkpoint = Checkpoint(artifact.module, artifact.manifest, artifact.folder)
    return RouteEngine(AdapterScorer(checkpoint=checkpoint, stanza_folder=stanza_folder))


def serve_routes(
    folder: Path, format_name: str | None, *, stanza_folder: str | None = None
) -> tuple[list[Route], dict[str, EngineFactory]]:
    """Return the HTTP route and the engine of an adapter's artifact. Entry point in the group ``graphrerank.services``.

    Args:
        folder: Folder of the artifact.
        format_name: Format of the model to load. If None, the default format is loaded.
        stanza_folder: Folder of Stanza's models, for an adapter trained with ``syntax: stanza``. If None, Stanza's
            default folder is used.

    Returns:
        Routes, and engine factories by engine name.
    """
    route = Route(("/route",), "route", RouteRequest, RouteResponse, "Return how much a query needs the graph.")
    return [route], {"route": partial(load_route_engine, folder, format_name, stanza_folder)}
