"""Convert traces of OpenTelemetry (OTLP as JSON) and Langfuse to events of a feedback log.

A retrieval is a span with ``gen_ai.retrieval.documents`` (OpenTelemetry's GenAI conventions) or
``retrieval.documents.N.document.id`` (OpenInference), or a Langfuse observation of type ``RETRIEVER`` whose output
lists documents with ids. Citations come from any other span or observation of the same trace, under the key ``cited``
or ``citations`` of its attributes, metadata or output, as ids or as objects with an ``id``. These two names are this
library's own, because no convention defines one.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

CITED = ("cited", "citations", "gen_ai.citations")
IDS = ("id", "document.id", "document_id", "doc_id")
FLAT_DOCUMENT_KEY = re.compile(r"retrieval\.documents\.(\d+)\.document\.(id|score)")
QUERY_KEYS = ("gen_ai.retrieval.query.text", "input.value")


def trace_events(content: Any) -> Iterator[dict[str, Any]]:
    """Yield the events of a JSON value from a trace file.

    Args:
        content: A span, an observation, a trace, an OTLP export, or a list of these.
    """
    if isinstance(content, list):
        for entry in content:
            yield from trace_events(entry)
    elif "resourceSpans" in content:
        for resource in content["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    yield from _of_span(span)
    elif "observations" in content:  # downloaded Langfuse trace
        for observation in content["observations"]:
            yield from _of_observation({"userId": content.get("userId"), "traceId": content.get("id"), **observation})
    elif "spanId" in content:
        yield from _of_span(content)
    else:
        yield from _of_observation(content)


def _of_span(span: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    listed = span.get("attributes", {})
    attributes = listed if isinstance(listed, dict) else {entry["key"]: _plain(entry["value"]) for entry in listed}
    documents: Any = _loaded(attributes.get("gen_ai.retrieval.documents"))
    if documents is None:
        flat: dict[int, dict[str, Any]] = {}
        for key, attribute in attributes.items():
            if match := FLAT_DOCUMENT_KEY.fullmatch(key):
                flat.setdefault(int(match[1]), {})[match[2]] = attribute
        documents = [flat[index] for index in sorted(flat)]
    query = next((attributes[key] for key in QUERY_KEYS if key in attributes), None)
    times = {
        "time": int(span["startTimeUnixNano"]) / 1e9,
        "user": attributes.get("user.id") or attributes.get("enduser.id"),
    }
    yield from _events(span["traceId"], span["spanId"], times, query, documents, [attributes])


def _of_observation(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    row = {re.sub(r"_(\w)", lambda letter: letter[1].upper(), key): entry for key, entry in row.items()}
    inputs, output = _loaded(row.get("input")), _loaded(row.get("output"))
    documents: Any = output.get("documents") if isinstance(output, dict) else output
    query = inputs.get("query") if isinstance(inputs, dict) else inputs
    retrieves = str(row.get("type", "")).upper() == "RETRIEVER"
    times = {"time": str(row["startTime"]).replace("Z", "+00:00"), "user": row.get("userId")}
    yield from _events(
        row["traceId"],
        row["id"],
        times,
        query,
        documents if retrieves and isinstance(documents, list) else [],
        [] if retrieves else [output, _loaded(row.get("metadata"))],
    )


def _events(
    trace: str, name: str, times: Mapping[str, Any], query: Any, documents: list[Any], cites: list[Any]
) -> Iterator[dict[str, Any]]:
    if documents:
        ids = list(dict.fromkeys(_id(document) for document in documents))
        yield {"event": "shown", "request_id": f"{trace}/{name}", "trace": trace, **times, "query": query, "ids": ids}
    for content in cites:
        listed = [_loaded(content[key]) for key in CITED if key in content] if isinstance(content, dict) else []
        if cited := [_id(each) for entries in listed if isinstance(entries, list) for each in entries]:
            yield {"event": "feedback", "request_id": trace, **times, "cited": cited}


def _id(document: Any) -> str:
    if not isinstance(document, dict):
        return str(document)
    sources = [document, _loaded(document.get("metadata"))]
    doc_id = next((source[key] for source in sources if isinstance(source, dict) for key in IDS if key in source), None)
    if doc_id is None:
        raise KeyError("id")
    return str(doc_id)


def _loaded(attribute: Any) -> Any:
    """Parse a string that contains JSON, and return any other value unchanged."""
    if isinstance(attribute, str) and attribute[:1] in ("[", "{"):
        try:
            return json.loads(attribute)
        except ValueError:
            return attribute
    return attribute


def _plain(attribute: Mapping[str, Any]) -> Any:
    """Return an OTLP value as plain JSON."""
    (kind, content), *_ = attribute.items()
    if kind == "arrayValue":
        return [_plain(each) for each in content.get("values", [])]
    if kind == "kvlistValue":
        return {each["key"]: _plain(each["value"]) for each in content.get("values", [])}
    return content
