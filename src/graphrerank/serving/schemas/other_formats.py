"""Responses in the formats of Infinity and Voyage AI, whose requests are those of ``POST /v1/rerank``."""

import time
from typing import Any, Literal

from pydantic import BaseModel, Field

from graphrerank.serving.schemas.rerank import (
    NO_USAGE,
    RankedDocuments,
    RerankRequest,
    TextResult,
    Usage,
    confidence_of,
    text_results,
)


class InfinityResponse(BaseModel):
    """Response of ``POST /infinity/rerank``."""

    object: Literal["rerank"] = Field(description="Type of the response.")
    id: str = Field(description="Id of the request, which is also in the logs.")
    created: int = Field(description="Time of the response, in seconds since 1970.")
    model: str = Field(description="Name of the model.")
    results: list[TextResult] = Field(description="Results by the model's score, best first.")
    usage: Usage = Field(description="Number of billed tokens.")
    meta: dict[str, Any] = Field(description="`warnings` of problematic items.")


class VoyageResponse(BaseModel):
    """Response of ``POST /voyage/v1/rerank``."""

    object: Literal["list"] = Field(description="Type of the response.")
    id: str = Field(description="Id of the request, which is also in the logs.")
    model: str = Field(description="Name of the model.")
    data: list[TextResult] = Field(description="Results by the model's score, best first.")
    usage: Usage = Field(description="Number of billed tokens.")
    meta: dict[str, Any] = Field(description="`warnings` of problematic items.")


def render_infinity(request: RerankRequest, ranked: RankedDocuments, uid: str, path: str = "") -> dict[str, Any]:
    """Return the content of an :class:`InfinityResponse`.

    Args:
        request: Request to respond to.
        ranked: Result of the engine.
        uid: Id of the request.
        path: Path of the request, which is not used.

    Returns:
        The response as a dictionary.
    """
    return {
        "object": "rerank",
        "id": uid,
        "created": int(time.time()),
        "model": ranked.model,
        "results": text_results(request, ranked),
        **_ending(ranked),
    }


def render_voyage(request: RerankRequest, ranked: RankedDocuments, uid: str, path: str = "") -> dict[str, Any]:
    """Return the content of a :class:`VoyageResponse`.

    Args:
        request: Request to respond to.
        ranked: Result of the engine.
        uid: Id of the request.
        path: Path of the request, which is not used.

    Returns:
        The response as a dictionary.
    """
    data = text_results(request, ranked)
    return {"object": "list", "id": uid, "model": ranked.model, "data": data, **_ending(ranked)}


def _ending(ranked: RankedDocuments) -> dict[str, Any]:
    return {"usage": NO_USAGE, "meta": {}, **confidence_of(ranked)}
