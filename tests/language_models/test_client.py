import json
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from graphrerank.language_models.client import MAX_WAIT, LanguageModel
from graphrerank.language_models.prompt import in_form

pytest.importorskip("httpx", reason="httpx is optional")


def test_answers_come_in_order_and_questions_alone(endpoint: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = endpoint
    monkeypatch.setenv("SOME_KEY", "secret")
    model = LanguageModel(url, "m", api_key_variable="SOME_KEY", temperature=0.7)
    questions = [f"question {i}" for i in range(20)]
    assert model.ask(questions, system=None, read=str.upper) == [f"<QUESTION {i}>" for i in range(20)]
    assert {request["path"] for request in handler.requests} == {"/v1/chat/completions"}
    assert {(request["model"], request["temperature"]) for request in handler.requests} == {("m", 0.7)}
    assert {request["key"] for request in handler.requests} == {"Bearer secret"}
    assert all([message["role"] for message in request["messages"]] == ["user"] for request in handler.requests)
    LanguageModel(url, "m", api_key_variable="NO_SUCH_KEY").ask(["a"], system="be short", read=str)
    assert handler.requests[-1]["messages"][0] == {"role": "system", "content": "be short"}
    assert handler.requests[-1]["key"] is None


def test_further_fields_of_a_request(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    given = OmegaConf.create({"max_tokens": 9, "response_format": {"type": "json_object"}, "stop": ["a", "b"]})
    model = LanguageModel(url, "m", request=given)
    model.ask(["a"], system=None, read=str)
    sent = handler.requests[0]
    assert (sent["max_tokens"], sent["stop"]) == (9, ["a", "b"])
    assert sent["response_format"] == {"type": "json_object"}
    assert model.fingerprint != LanguageModel(url, "m").fingerprint
    with pytest.raises(ValueError, match=r"`request` must not contain model, messages or temperature, got \['model'\]"):
        LanguageModel(url, "m", request={"model": "other"})


def test_pauses_grow_and_end(endpoint: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = endpoint
    handler.script = {"a": [(200, "nonsense")] * 4}
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append)  # not time.sleep itself: other threads sleep too
    monkeypatch.setattr("graphrerank.language_models.client.time", clock)
    LanguageModel(url, "m", pause=10.0).ask(["a"], system=None, read=str)
    assert pauses == [10.0, 20.0, 40.0, MAX_WAIT]


SCHEMA = '{"type": "object", "properties": {"answer": {"type": "string"}}}'


def test_an_endpoint_is_asked_for_a_schema_where_it_can_keep_to_one(endpoint) -> None:
    url, handler = endpoint
    model = LanguageModel(url, "m", constrained=True, request={"max_tokens": 5})
    in_form(model, SCHEMA).ask(["q"], system=None, read=str)
    (request,) = handler.requests
    schema = {"name": "answer", "strict": True, "schema": json.loads(SCHEMA)}
    assert request["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert request["max_tokens"] == 5
    assert in_form(model, SCHEMA).fingerprint != model.fingerprint
    own = LanguageModel("http://x", "m", constrained=True, request={"response_format": {"type": "json_object"}})
    assert in_form(own, SCHEMA) is own
    assert in_form(model, "yes|no") is model  # OpenAI's format has no regular expressions
    plain = LanguageModel("http://x", "m")
    assert in_form(plain, SCHEMA) is plain
