"""Traces of "retrieved and cited" as events of the log: OpenTelemetry (OTLP as JSON) and Langfuse.

A retrieval is a span with ``gen_ai.retrieval.documents`` (OpenTelemetry's GenAI conventions) or
``retrieval.documents.N.document.id`` (OpenInference), or a Langfuse observation of type ``RETRIEVER`` whose output
lists documents with ids. Citations are what any other span or observation of the same trace lists as ``cited`` or
``citations``, in its attributes, metadata or output: ids, or objects with an ``id``. No convention has a name for them.
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
    """Yield the events of one JSON value of a trace file; of a list those of its entries."""
    if isinstance(content, list):
        for entry in content:
            yield from trace_events(entry)
    elif "resourceSpans" in content:
        for resource in content["resourceSpans"]:
            for scope in resource["scopeSpans"]:
                for span in scope["spans"]:
                    yield from _of_span(span)
    elif "observations" in content:  # a Langfuse trace as downloaded
        for observation in content["observations"]:
            yield from _of_observation({"userId": content.get("userId"), "traceId": content.get("id"), **observation})
    elif "spanId" in content:
        yield from _of_span(content)
    else:
        yield from _of_observation(content)


def _of_span(span: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    given = span.get("attributes", {})
    attributes = given if isinstance(given, dict) else {each["key"]: _plain(each["value"]) for each in given}
    documents: Any = _loaded(attributes.get("gen_ai.retrieval.documents"))
    if documents is None:
        flat: dict[int, dict[str, Any]] = {}
        for key, held in attributes.items():
            if found := FLAT_DOCUMENT_KEY.fullmatch(key):
                flat.setdefault(int(found[1]), {})[found[2]] = held
        documents = [flat[at] for at in sorted(flat)]
    query = next((attributes[key] for key in QUERY_KEYS if key in attributes), None)
    times = {
        "time": int(span["startTimeUnixNano"]) / 1e9,
        "user": attributes.get("user.id") or attributes.get("enduser.id"),
    }
    yield from _events(span["traceId"], span["spanId"], times, query, documents, [attributes])


def _of_observation(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    row = {re.sub(r"_(\w)", lambda letter: letter[1].upper(), key): held for key, held in row.items()}
    given, output = _loaded(row.get("input")), _loaded(row.get("output"))
    documents: Any = output.get("documents") if isinstance(output, dict) else output
    query = given.get("query") if isinstance(given, dict) else given
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
    places = [document, _loaded(document.get("metadata"))]
    found = next((at[key] for at in places if isinstance(at, dict) for key in IDS if key in at), None)
    if found is None:
        raise KeyError("id")
    return str(found)


def _loaded(attribute: Any) -> Any:
    """Parse JSON in a text; any other text stays."""
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
