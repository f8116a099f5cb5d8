import json
from pathlib import Path

import pytest

from graphrerank.feedback.log import read_log

NOW = 1_800_000_000


def attribute(key: str, text: str) -> dict[str, object]:
    return {"key": key, "value": {"stringValue": text}}


def otlp(*attributes: dict[str, object], span: str) -> dict[str, object]:
    of = {"traceId": "t", "spanId": span, "startTimeUnixNano": str(NOW * 10**9), "attributes": list(attributes)}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [of]}]}]}


cited = {"key": "citations", "value": {"arrayValue": {"values": [{"stringValue": "b"}]}}}
conventions = otlp(
    attribute("gen_ai.retrieval.query.text", "q"),
    attribute("gen_ai.retrieval.documents", '[{"id": "a", "score": 2}, {"id": "b", "score": 1}]'),
    attribute("user.id", "u"),
    span="1",
)
openinference = otlp(
    attribute("input.value", "q"),
    attribute("retrieval.documents.1.document.id", "b"),
    attribute("retrieval.documents.0.document.id", "a"),
    attribute("user.id", "u"),
    span="1",
)
langfuse = {
    "id": "t",
    "userId": "u",
    "observations": [
        {"id": "2", "type": "GENERATION", "startTime": "2027-01-15T08:00:09Z", "output": {"citations": ["b"]}},
        {
            "id": "1", "type": "RETRIEVER", "startTime": "2027-01-15T08:00:00Z", "input": {"query": "q"},
            "output": [{"id": "a"}, {"page_content": "text", "metadata": {"doc_id": "b"}}],
        },
    ],
}  # fmt: skip
exported = [
    {"id": "1", "trace_id": "t", "type": "RETRIEVER", "start_time": "2027-01-15 08:00:00", "user_id": "u",
     "input": "q", "output": '{"documents": ["a", "b"]}'},
    {"id": "2", "trace_id": "t", "type": "GENERATION", "start_time": "2027-01-15 08:00:09", "user_id": "u",
     "output": "text", "metadata": {"cited": [{"id": "b"}]}},
]  # fmt: skip


@pytest.mark.parametrize(
    "lines",
    [[otlp(cited, span="2"), conventions], [openinference, otlp(cited, span="2")], [langfuse], exported, [exported]],
    ids=["gen_ai", "openinference", "langfuse", "langfuse lines", "langfuse array"],
)
def test_retrieved_and_cited_becomes_a_session(tmp_path: Path, lines: list[object]) -> None:
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    log = read_log(path, now=NOW)
    (session,) = log.sessions
    assert (session.request_id, session.query, session.user, session.ids) == ("t/1", "q", "u", ("a", "b"))
    assert session.gains == (0.0, 1.0)
    assert session.time == NOW
    assert not log.left_out


def test_a_downloaded_trace_is_a_json_file(tmp_path: Path) -> None:
    path = tmp_path / "trace-t.json"
    path.write_text(json.dumps(langfuse, indent=2))
    assert read_log(path, now=NOW).sessions[0].gains == (0.0, 1.0)


def test_spans_of_other_kinds_and_broken_ones(tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    lines = [otlp(attribute("input.value", "hello"), span="3"), {"resourceSpans": 3}, {"spanId": "x"}]
    path.write_text("\n".join(map(json.dumps, lines)))
    log = read_log(path, now=NOW)
    assert (log.sessions, log.left_out) == ([], {"malformed": 2})
