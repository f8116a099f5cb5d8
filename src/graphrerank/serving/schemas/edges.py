"""JSON schema and validation of edges in request bodies."""

from collections.abc import Mapping
from typing import Any

from pydantic import (
    ValidationInfo,
    WithJsonSchema,
)

from graphrerank.corpus.edge_types import EDGE_TYPES
from graphrerank.rerank.edge_forms import EDGE_FORMS, LARGEST_WEIGHT, SMALLEST_WEIGHT
from graphrerank.serving.schemas.requests import check_most, limits_of
from graphrerank.utils.checks import UserError


def edge_schema(end: Mapping[str, Any]) -> WithJsonSchema:
    """Return the JSON schema of a list of edges.

    Args:
        end: JSON schema of one end of an edge.
    """
    weight = {"type": ["number", "null"], "minimum": SMALLEST_WEIGHT, "maximum": LARGEST_WEIGHT}
    name = {"type": ["string", "null"], "examples": list(EDGE_TYPES)}
    third = {"anyOf": [weight, name, {"type": "object", "properties": {"weight": weight, "type": name}}]}
    edge = {"type": "array", "prefixItems": [end, end, third, name], "minItems": 2, "maxItems": 4}
    return WithJsonSchema({"type": "array", "items": edge})


NUMBERED_EDGES = edge_schema({"type": "integer", "minimum": 0})


def listed_edges(content: Any, info: ValidationInfo) -> list[Any] | None:
    """Return the edges of a JSON body as a list, after checking their number.

    Args:
        content: Edges from JSON, or None.
        info: Context of the validation, with the limits.

    Returns:
        The list of edges, which are not checked themselves, or None.

    Raises:
        UserError: If the edges are not a list or exceed the limit.
    """
    if content is None:
        return None
    if not isinstance(content, list | tuple):
        raise UserError(f"`edges` must be a list of {EDGE_FORMS}, got {type(content).__name__}")
    check_most(limits_of(info).edges, len(content), "edges")
    return list(content)
