import threading
from typing import Any

import pytest

from graphrerank.language_models import LanguageModel, Reply, all_replies

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
    "refuses": ([(200, body(None, refusal="I will not."))], Reply("", "refused", "m-1", 7, 2)),
    "filtered": ([(200, body(None, finish="content_filter"))], Reply("", "refused", "m-1", 7, 2)),
    "fails once": ([(503, ""), (200, body("Metz"))], Reply("Metz", "answered", "m-1", 7, 2, attempts=2)),
    "rubbish once": ([(200, [1]), (200, body(["x"])), (200, body("Metz"))], Reply("Metz", "answered", "m-1", 7, 2, 3)),
}


def test_what_becomes_of_a_question(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    handler.script = {question: list(script) for question, (script, _) in TROUBLES.items()}
    replies = all_replies(LanguageModel(url, "m", pause=0.0, max_retries=2), list(TROUBLES), system=None)
    assert dict(zip(TROUBLES, replies, strict=True)) == {name: reply for name, (_, reply) in TROUBLES.items()}


def test_what_fails_or_is_too_long_stops_no_other(endpoint: tuple[str, Any]) -> None:
    url, handler = endpoint
    handler.script = {"fails": [(500, "")] * 3, "rubbish": [(200, "x")] * 3, "too long": [(400, {"error": "too long"})]}
    questions = ["fails", "rubbish", "too long", "last"]
    replies = all_replies(LanguageModel(url, "m", pause=0.0, max_retries=2), questions, system=None)
    assert [reply.outcome for reply in replies] == ["failed", "failed", "rejected", "answered"]
    assert [reply.attempts for reply in replies] == [3, 3, 1, 1]
    assert "status 500" in replies[0].problem
    assert "too long" in replies[2].problem


def test_a_slow_endpoint_fails(endpoint: tuple[str, Any]) -> None:
    model = LanguageModel("http://127.0.0.1:1/v1", "m", pause=0.0, max_retries=1)  # reaches no server
    assert [reply.outcome for reply in all_replies(model, ["a"], system=None)] == ["failed"]
    over = threading.Event()
    endpoint[1].answer = lambda *_: over.wait(60)
    model = LanguageModel(endpoint[0], "m", pause=0.0, max_retries=1, timeout=0.05)
    assert [(reply.outcome, reply.attempts) for reply in all_replies(model, ["a"], system=None)] == [("failed", 2)]
    over.set()


def test_a_wrong_key_stops_the_run(endpoint: tuple[str, Any]) -> None:
    endpoint[1].script = {"a": [(401, "")]}
    with pytest.raises(ValueError, match="refused with status 401"):
        all_replies(LanguageModel(endpoint[0], "m", pause=0.0), ["a"], system=None)


def test_bytes() -> None:
    for _, reply in TROUBLES.values():
        assert Reply.from_bytes(reply.to_bytes()) == reply
    for damaged in (b"", b"[]", b'{"text": ""}'):
        with pytest.raises(ValueError, match="damaged reply in a cache"):
            Reply.from_bytes(damaged)
