"""Routes queries with a complexity adapter: how much each needs the graph, and which path it takes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from graphrerank.graphs.routes import ROUTES, choose_routes
from graphrerank.inference import AdapterScorer
from graphrerank.models import Checkpoint
from graphrerank.serving.artifact import load_artifact
from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import limits_of
from graphrerank.serving.metrics import metrics


class RouteRequest(BaseModel):
    """What ``POST /route`` takes.

    Attributes:
        query: The query, not empty.
    """

    model_config = ConfigDict(extra="forbid")

    query: Annotated[str, Field(min_length=1)]

    @field_validator("query")
    @classmethod
    def _not_too_long(cls, query: str, info: ValidationInfo) -> str:
        return limits_of(info).check_text("query", query)


class Thresholds(BaseModel):
    """From where on a query takes which path.

    Attributes:
        low: Up to this score it takes the dense path.
        high: From this score on it takes the graph path; between both their fusion.
    """

    low: float
    high: float


class RouteResponse(BaseModel):
    """What ``POST /route`` answers.

    Attributes:
        id: Of the request, as in the logs.
        score: s(q) in [0, 1]: how much the query needs the graph.
        route: ``dense``, ``graph`` or ``fusion``.
        thresholds: The adapter's.
    """

    id: str
    score: float
    route: str
    thresholds: Thresholds


class RouteEngine:
    """Scores the queries of many requests at once.

    Args:
        scorer: The adapter.
    """

    def __init__(self, scorer: AdapterScorer) -> None:
        self._scorer = scorer

    def answer(self, requests: Mapping[str, RouteRequest]) -> dict[str, Answer]:
        """Answer a batch of requests, by their ids."""
        low, high = self._scorer.low, self._scorer.high
        with metrics().stage_seconds.labels("route").time():
            scores = self._scorer.score([request.query for request in requests.values()])
        routes = choose_routes(scores, low, high)
        thresholds = Thresholds(low=low, high=high)
        return {
            uid: Answer.of(RouteResponse(id=uid, score=score, route=ROUTES[route], thresholds=thresholds))
            for uid, score, route in zip(requests, scores.tolist(), routes.tolist(), strict=True)
        }

    def warm_up(self) -> None:
        """Load what reads the syntax."""
        self.answer({"first": RouteRequest(query="what warms up?")})


def load_route_engine(
    folder: Path, stanza_folder: str | None, device: str, *, format_name: str | None = None
) -> RouteEngine:
    """Load an adapter's artifact in a worker.

    Args:
        folder: The artifact's.
        stanza_folder: Where Stanza's model lies, for an adapter that was trained with it.
        device: Not used: the adapter is small.
        format_name: Of the artifact's formats the one that scores; None for TorchScript where there is any.

    Raises:
        ValueError: As :func:`load_artifact` and :class:`AdapterScorer`.
    """
    artifact = load_artifact(folder, format_name)
    checkpoint = Checkpoint(artifact.module, artifact.manifest, artifact.folder)
    return RouteEngine(AdapterScorer(checkpoint=checkpoint, stanza_folder=stanza_folder))
