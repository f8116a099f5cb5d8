import threading
from typing import Any

import pytest

from graphrerank.language_models.client import EndpointError, LanguageModel, post
from graphrerank.language_models.reply import Reply, read_reply
from graphrerank_papers.answers.writers import RecordedModel

pytest.importorskip("httpx", reason="httpx is optional")


def body(content: Any, *, finish: str = "stop", model: str = "m-1", **message: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 7, "completion_tokens": 2}
    choice = {"finish_reason": finish, "message": {"content": content, **message}}
    return {"model": model, "usage": usage, "choices": [choice]}


TROUBLES: dict[str, tuple[list[tuple[int, Any]], Reply]] = {
    "answers": ([(200, body("Metz"))], Reply("Metz", "answered", "m-1", 7, 2)),
    "counts no tokens": ([], Reply("<counts no tokens>", "answered")),
    "another name": ([(200, body("Metz", model="m-2"))], Reply("Metz", "answered", "m-2", 7, 2)),
    "too many tokens": ([(200, body("Met", finish="length"))], Reply("Met", "cut", "m-1", 7, 2)),
    "reasons too long": ([(200, body(None, finish="length"))], Reply("", "cut", "m-1", 7, 2)),
    "half a character": (
        [(200, body("bad \ud83d end"))],
        Reply("bad \N{REPLACEMENT CHARACTER} end", "answered", "m-1", 7, 2),
    ),
    "refuses": ([(200, body(None, refusal="I will not."))], Reply("", "refused", "m-1", 7, 2)),
    "filtered": ([(200, body(None, finish="content_filter"))], Reply("", "refused", "m-1", 7, 2)),
    "fails once": ([(503, ""), (200, body("Metz"))], Reply("Metz", "answered", "m-1", 7, 2, attempts=2)),
    "rubbish once": ([(200, [1]), (200, body(["x"])), (200, body("Metz"))], Reply("Metz", "answered", "m-1", 7, 2, 3)),
}


def test_what_becomes_of_a_question(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    handler.script = {question: list(script) for question, (script, _) in TROUBLES.items()}
    replies = RecordedModel(LanguageModel(url, "m", pause=0.0, max_retries=2)).all_replies(list(TROUBLES), system=None)
    assert dict(zip(TROUBLES, replies, strict=True)) == {name: reply for name, (_, reply) in TROUBLES.items()}


def test_what_fails_or_is_too_long_stops_no_other(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    handler.script = {
        "fails": [(500, "")] * 3,
        "rubbish": [(200, "x")] * 3,
        "too long": [(500, ""), (400, {"error": "too long"})],
    }
    questions = ["fails", "rubbish", "too long", "last"]
    replies = RecordedModel(LanguageModel(url, "m", pause=0.0, max_retries=2)).all_replies(questions, system=None)
    assert [reply.outcome for reply in replies] == ["failed", "failed", "rejected", "answered"]
    assert [reply.attempts for reply in replies] == [3, 3, 2, 1]
    assert replies[0].problem == "status 500"
    assert replies[2].problem.startswith("status 400: ")
    assert "too long" in replies[2].problem


def test_a_slow_endpoint_fails(endpoint: tuple[str, Any]) -> None:
    over = threading.Event()
    endpoint[1].answer = lambda *_: over.wait(60)
    model = LanguageModel(endpoint[0], "m", pause=0.0, max_retries=1, timeout=0.05)
    assert [(reply.outcome, reply.attempts) for reply in RecordedModel(model).all_replies(["a"], system=None)] == [
        ("failed", 2)
    ]
    over.set()


def test_no_server_stops_the_run() -> None:
    model = LanguageModel("http://127.0.0.1:1/v1", "m", pause=0.0, max_retries=1)
    with pytest.raises(ValueError, match=r"http://127.0.0.1:1/v1/chat/completions gave no usable .*ConnectError"):
        RecordedModel(model).all_replies(["a", "b"], system=None)


def test_a_server_that_goes_away_stops_no_run(endpoint: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    import httpx

    post = httpx.Client.post

    def answer(self: Any, url: str, *, json: Any) -> Any:
        if json["messages"][-1]["content"] != "first":
            raise httpx.ConnectError("refused")
        return post(self, url, json=json)

    monkeypatch.setattr(httpx.Client, "post", answer)
    model = LanguageModel(endpoint[0], "m", pause=0.0, max_retries=0, concurrency=1)
    replies = RecordedModel(model).all_replies(["first", "second"], system=None)
    assert [reply.outcome for reply in replies] == ["answered", "failed"]


@pytest.mark.parametrize(
    ("headers", "content", "problem"),
    [({"content-encoding": "gzip"}, b"no gzip", "DecodingError("), ({}, b"[" * 100_000, "RecursionError(")],
)
def test_a_body_that_cannot_be_read_fails(headers: Any, content: bytes, problem: str) -> None:
    import httpx

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers=headers, stream=httpx.ByteStream(content))

    with httpx.Client(transport=httpx.MockTransport(answer)) as client, pytest.raises(EndpointError) as raised:
        post(client, "http://a", {}, read_reply, shown="a", max_retries=1, pause=0.0)
    assert (raised.value.attempts, raised.value.is_reached) == (2, True)
    assert raised.value.problem.startswith(problem)


@pytest.mark.parametrize("base_url", ["127.0.0.1:9/v1", "ftp://a/v1", "http://", "http://a:port/v1"])
def test_what_is_no_address(base_url: str) -> None:
    with pytest.raises(ValueError, match="`base_url` must be an address such as http://localhost:8000/v1, got"):
        LanguageModel(base_url, "m")


@pytest.mark.parametrize("key", ["secret\n", "s\N{LATIN SMALL LETTER E WITH ACUTE}cret"])
def test_a_key_that_no_header_can_hold(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(
        ValueError, match="`OPENAI_API_KEY` must contain only printable ASCII characters without spaces"
    ) as raised:
        RecordedModel(LanguageModel("http://127.0.0.1:1", "m")).all_replies(["a"], system=None)
    assert "cret" not in str(raised.value)


def test_bytes() -> None:
    for _, reply in TROUBLES.values():
        assert Reply.from_bytes(reply.to_bytes()) == reply
    for damaged in (b"", b"[]", b'{"text": ""}'):
        with pytest.raises(ValueError, match="damaged reply in a cache"):
            Reply.from_bytes(damaged)
