import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from graphrerank.knowledge import Knowledge, LanguageModelEntityExtractor
from graphrerank.knowledge.language_model_entities import parse_entities
from graphrerank.language_models import Prompt, shipped_prompt


class Endpoint(BaseHTTPRequestHandler):
    """A local stand-in for a chat endpoint that plays a script of (status, content) per text."""

    script: dict[str, list[tuple[int, str]]]
    requests: list[dict[str, Any]]
    keys: list[str | None]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, **body})
        self.keys.append(self.headers.get("Authorization"))
        status, content = self.script[body["messages"][-1]["content"]].pop(0)
        raw = json.dumps({"choices": [{"message": {"content": content}}]}).encode()
        self.send_response(status)
        if status == 429:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[Endpoint]]]:
    pytest.importorskip("httpx", reason="httpx is optional")
    handler = type("Scripted", (Endpoint,), {"script": {}, "requests": [], "keys": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/", handler
    server.shutdown()
    server.server_close()


PLAIN = Prompt("p", "{text}", system="p")


def answer(*names: str) -> tuple[int, str]:
    return 200, json.dumps({"entities": list(names)})


def test_language_model_in_order_and_with_key(
    endpoint: tuple[str, type[Endpoint]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = endpoint
    monkeypatch.setenv("SOME_KEY", "secret")
    handler.script = {"one": [answer("A")], "two": [answer()], "thr": [answer("B", "C")]}
    extractor = LanguageModelEntityExtractor(url, "m", api_key_variable="SOME_KEY", max_characters=3)
    assert extractor.extract(["one", "two", "three"]) == [
        Knowledge.from_names(["A"]),
        Knowledge(),
        Knowledge.from_names(["B", "C"]),
    ]
    assert {request["path"] for request in handler.requests} == {"/v1/chat/completions"}
    assert {(request["model"], request["temperature"]) for request in handler.requests} == {("m", 0)}
    assert set(handler.keys) == {"Bearer secret"}
    assert "secret" not in extractor.fingerprint


@pytest.mark.parametrize(
    "trouble", [(429, ""), (500, ""), (503, ""), (200, "Sure! Here you are"), (200, '{"entities": [1]}')]
)
def test_language_model_tries_again(endpoint: tuple[str, type[Endpoint]], trouble: tuple[int, str]) -> None:
    url, handler = endpoint
    handler.script = {"one": [trouble, answer("A")]}
    assert LanguageModelEntityExtractor(url, "m", pause=0.0).extract(["one"])[0].names == ["A"]
    assert len(handler.requests) == 2


def test_language_model_gives_up(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    handler.script = {"one": [(500, "")] * 3}
    with pytest.raises(ValueError, match=r"no usable answer in 3 tries for the text 'one'; last: status 500"):
        LanguageModelEntityExtractor(url, "m", pause=0.0, max_retries=2).extract(["one"])


def test_language_model_refusal_is_final(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    handler.script = {"one": [(401, "")]}
    with pytest.raises(ValueError, match="refused with status 401"):
        LanguageModelEntityExtractor(url, "m", pause=0.0).extract(["one"])
    assert len(handler.requests) == 1


def test_language_model_that_is_not_there() -> None:
    pytest.importorskip("httpx", reason="httpx is optional")
    with pytest.raises(ValueError, match=r"no usable answer in 2 tries.*ConnectError"):
        LanguageModelEntityExtractor("http://127.0.0.1:9/v1", "m", pause=0.0, max_retries=1).extract(["one"])


def test_fingerprint_changes_with_all_that_decides_the_answers() -> None:
    plain = LanguageModelEntityExtractor("http://a/v1", "m", prompt=PLAIN, max_characters=9)
    assert plain.fingerprint == repr(("language model", "m", "p", 9))  # as of version 0.1
    others = [
        LanguageModelEntityExtractor("http://a/v1", "m", prompt=PLAIN, max_characters=9, **settings)
        for settings in ({"temperature": 0.5}, {"request": {"max_tokens": 5}})
    ]
    assert len({extractor.fingerprint for extractor in (plain, *others)}) == 3
    elsewhere = LanguageModelEntityExtractor("http://b/v1", "m", prompt=PLAIN, max_characters=9, timeout=1.0)
    assert elsewhere.fingerprint == plain.fingerprint


def test_repeated_and_blank_names_are_left_out(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    handler.script = {"one": [answer("B", " ", "A", "B")]}
    assert LanguageModelEntityExtractor(url, "m").extract(["one"])[0].names == ["B", "A"]


def test_graphers_prompt_asks_for_dates_and_reads_a_python_list(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    prompt = shipped_prompt("grapher_entities")
    text = "Lothair died in Piacenza on 8 August 869."
    asked = prompt.fill(text=text)
    assert "dates" in asked
    assert asked.endswith(f"Text:\n\n{text}\n\nOutput:")
    handler.script = {asked: [(200, "Sure!"), (200, "```python\n['Lothair', 'Piacenza', '8 August 869']\n```")]}
    extractor = LanguageModelEntityExtractor(url, "m", prompt=prompt, pause=0.0)
    assert extractor.extract([text])[0].names == ["Lothair", "Piacenza", "8 August 869"]
    assert [message["role"] for message in handler.requests[0]["messages"]] == ["user"]  # A.1.1 is one message


@pytest.mark.parametrize("content", ["['a", "{'entities': 'a'}", '["a", 1]', "a", "__import__('os')", "(" * 10_000])
def test_what_is_no_list_of_names_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_entities(content)
