import json
from typing import Any

import pytest

from graphrerank.knowledge.passage_knowledge import Knowledge
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank_papers.knowledge.language_model_entities import LanguageModelEntityExtractor, parse_entities
from tests.support.language_models import ChatEndpoint

Endpoint = tuple[str, type[ChatEndpoint]]
PLAIN = Prompt("p", "{text}", system="p")


def says(content: str) -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"content": content}}]}


def answer(*names: str) -> tuple[int, Any]:
    return says(json.dumps({"entities": list(names)}))


def test_language_model_in_order_and_with_key(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert {request["key"] for request in handler.requests} == {"Bearer secret"}
    assert "secret" not in extractor.fingerprint


@pytest.mark.parametrize(
    "trouble", [(429, ""), (500, ""), (503, ""), says("Sure! Here you are"), says('{"entities": [1]}')]
)
def test_language_model_tries_again(endpoint: Endpoint, trouble: tuple[int, Any]) -> None:
    url, handler = endpoint
    handler.script = {"one": [trouble, answer("A")]}
    assert LanguageModelEntityExtractor(url, "m", pause=0.0).extract(["one"])[0].names == ["A"]
    assert len(handler.requests) == 2


def test_language_model_gives_up(endpoint: Endpoint) -> None:
    url, handler = endpoint
    handler.script = {"one": [(500, "")] * 3}
    with pytest.raises(ValueError, match=r"no usable answer in 3 tries for the text 'one'; last: status 500"):
        LanguageModelEntityExtractor(url, "m", pause=0.0, max_retries=2).extract(["one"])


def test_language_model_refusal_is_final(endpoint: Endpoint) -> None:
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


def test_repeated_and_blank_names_are_left_out(endpoint: Endpoint) -> None:
    url, handler = endpoint
    handler.script = {"one": [answer("B", " ", "A", "B")]}
    assert LanguageModelEntityExtractor(url, "m").extract(["one"])[0].names == ["B", "A"]


def test_graphers_prompt_asks_for_dates_and_reads_a_python_list(endpoint: Endpoint) -> None:
    url, handler = endpoint
    prompt = shipped_prompt("grapher_entities")
    text = "Lothair died in Piacenza on 8 August 869."
    asked = prompt.fill(text=text)
    assert "dates" in asked
    assert asked.endswith(f"Text:\n\n{text}\n\nOutput:")
    handler.script = {asked: [says("Sure!"), says("```python\n['Lothair', 'Piacenza', '8 August 869']\n```")]}
    extractor = LanguageModelEntityExtractor(url, "m", prompt=prompt, pause=0.0)
    assert extractor.extract([text])[0].names == ["Lothair", "Piacenza", "8 August 869"]
    assert [message["role"] for message in handler.requests[0]["messages"]] == ["user"]  # A.1.1 is one message


@pytest.mark.parametrize("content", ["['a", "{'entities': 'a'}", '["a", 1]', "a", "__import__('os')", "(" * 10_000])
def test_what_is_no_list_of_names_is_refused(content: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_entities(content)
