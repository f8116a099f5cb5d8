"""Routing of queries by a complexity adapter: how much each needs the graph, and which path it takes."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pydantic import BaseModel

from graphrerank.artifacts.artifact import load_artifact
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.pipelines.router import ROUTES, choose_routes
from graphrerank.serving.engine import Check, EngineFactory
from graphrerank.serving.metrics import STAGE_SECONDS
from graphrerank.serving.routes import Route
from graphrerank.serving.schemas.requests import QueryRequest
from graphrerank_papers.ea_graphrag.complexity_adapter import ThresholdsEntry
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer


class RouteRequest(QueryRequest):
    """Body of ``POST /route``: a query, not blank."""


class RouteResponse(BaseModel):
    """Response of ``POST /route``."""

    id: str  # of the request, as in the logs
    score: float  # s(q) in [0, 1]: how much the query needs the graph
    route: str  # `dense`, `graph` or `fusion`
    thresholds: ThresholdsEntry  # of the adapter


class RouteEngine:
    """Scores the queries of many requests at once."""

    def __init__(self, scorer: AdapterScorer) -> None:
        self._scorer = scorer

    def answer(self, jobs: Mapping[str, RouteRequest], check: Check = lambda: None) -> dict[str, RouteResponse]:
        """Route the queries of a batch of requests, by id."""
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
        """Load the parser."""
        self.answer({"first": RouteRequest(query="what warms up?")})


def load_route_engine(folder: Path, format_name: str | None, stanza_folder: str | None) -> RouteEngine:
    """Load an adapter's artifact in a worker."""
    artifact = load_artifact(folder, format_name)
    checkpoint = Checkpoint(artifact.module, artifact.manifest, artifact.folder)
    return RouteEngine(AdapterScorer(checkpoint=checkpoint, stanza_folder=stanza_folder))


def serve_routes(
    folder: Path, format_name: str | None, *, stanza_folder: str | None = None
) -> tuple[list[Route], dict[str, EngineFactory]]:
    """Return the route and the engine of an adapter's artifact: an entry point of ``graphrerank.services``.

    ``stanza_folder`` is the folder of Stanza's model, for an adapter trained with it.
    """
    route = Route(("/route",), "route", RouteRequest, RouteResponse, "Return how much a query needs the graph.")
    return [route], {"route": partial(load_route_engine, folder, format_name, stanza_folder)}
