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


def test_a_system_message_comes_first(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    LanguageModel(url, "m", api_key_variable="NO_SUCH_KEY").ask(["a"], system="be short", read=str)
    (request,) = handler.requests
    assert request["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "a"}]
    assert request["key"] is None


def test_further_fields_of_a_request(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    given = OmegaConf.create({"max_tokens": 9, "response_format": {"type": "json_object"}, "stop": ["a", "b"]})
    model = LanguageModel(url, "m", request=given)
    model.ask(["a"], system=None, read=str)
    sent = handler.requests[0]
    assert (sent["max_tokens"], sent["stop"]) == (9, ["a", "b"])
    assert sent["response_format"] == {"type": "json_object"}
    assert model.fingerprint != LanguageModel(url, "m").fingerprint
    with pytest.raises(ValueError, match=r"`request` must not set fields of the client, got \['model'\]"):
        LanguageModel(url, "m", request={"model": "other"})


@pytest.mark.parametrize("trouble", [(429, ""), (503, ""), (200, {"choices": []}), (200, "nonsense")])
def test_what_fails_is_asked_again(endpoint: tuple[str, Any], trouble: tuple[int, Any]) -> None:
    url, handler = endpoint
    handler.script = {"a": [trouble, trouble]}
    assert LanguageModel(url, "m", pause=0.0).ask(["a", "b"], system=None, read=str) == ["<a>", "<b>"]
    assert len(handler.requests) == 4


def test_pauses_grow_and_end(endpoint: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    url, handler = endpoint
    handler.script = {"a": [(200, "nonsense")] * 4}
    pauses: list[float] = []
    clock = SimpleNamespace(sleep=pauses.append)  # not time.sleep itself: other threads sleep too
    monkeypatch.setattr("graphrerank.language_models.client.time", clock)
    LanguageModel(url, "m", pause=10.0).ask(["a"], system=None, read=str)
    assert pauses == [10.0, 20.0, 40.0, MAX_WAIT]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_retries": -1}, "`max_retries` must not be negative, got -1"),
        ({"concurrency": 0}, "`concurrency` must be a positive integer, got 0"),
        ({"temperature": -0.1}, "`temperature` must not be negative, got -0.1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LanguageModel("http://localhost/v1", "m", **arguments)


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


def test_a_model_without_forms_and_a_format_of_ones_own_stay() -> None:
    own = LanguageModel("http://x", "m", constrained=True, request={"response_format": {"type": "json_object"}})
    plain, constrained = LanguageModel("http://x", "m"), LanguageModel("http://x", "m", constrained=True)
    assert (in_form(plain, SCHEMA), in_form(own, SCHEMA)) == (plain, own)
    assert in_form(constrained, "yes|no") is constrained  # OpenAI's format has no regular expressions
