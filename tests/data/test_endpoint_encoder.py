"""Vectors from an endpoint on this machine, which encodes a text as its length and its first letter."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.core.adapters import query_encoder
from graphrerank.data.candidates import with_vectors
from graphrerank.data.dataset import Dataset
from graphrerank.data.encoder import RefusedTextError, encode_passages
from graphrerank.data.endpoint_encoder import EndpointEncoder
from graphrerank.data.vector_cache import VectorCache
from graphrerank.language_models.client import EndpointError
from tests.support.folders import write_dataset
from tests.support.web import Endpoint, listening

pytest.importorskip("httpx", reason="httpx is optional")


class Embeddings(Endpoint):
    requests: list[dict[str, Any]]
    troubles: list[tuple[int, Any]]  # of the next answers

    def reply(self, body: Any) -> tuple[int, Any]:
        type(self).requests.append(body | {"path": self.path, "key": self.headers.get("Authorization")})
        data = [{"index": i, "embedding": [len(text), ord(text[0])]} for i, text in enumerate(body["input"])]
        if self.troubles:
            return type(self).troubles.pop(0)
        return 200, {"data": data[::-1], "usage": {"prompt_tokens": 3 * len(data)}}


@pytest.fixture
def embeddings() -> Iterator[tuple[str, type[Embeddings]]]:
    handler = type("Own", (Embeddings,), {"requests": [], "troubles": []})
    with listening(handler) as address:
        yield f"{address}/v1", handler


def expected(*texts: str) -> torch.Tensor:
    return torch.nn.functional.normalize(
        torch.tensor([[float(len(text)), float(ord(text[0]))] for text in texts]), dim=1
    )


def test_batches_in_order_counted_and_cached(
    embeddings: tuple[str, type[Embeddings]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = embeddings
    monkeypatch.setenv("SOME_KEY", "secret")
    encoder = EndpointEncoder(url, model="org/m", dimensions=2, batch_size=3, api_key_variable="SOME_KEY")
    texts = [letter * (i + 1) for i, letter in enumerate("abcdefgh")]
    for _ in range(2):
        torch.testing.assert_close(VectorCache(encoder, tmp_path).encode(texts), expected(*texts))
    assert sorted(len(request["input"]) for request in handler.requests) == [2, 3, 3]
    assert {(r["path"], r["model"], r["dimensions"], r["key"]) for r in handler.requests} == {
        ("/v1/embeddings", "org/m", 2, "Bearer secret")
    }
    assert encoder.counts == {"requests": 3, "texts": 8, "tokens": 24, "retries": 0, "cache_hits": 8}
    VectorCache(encoder, tmp_path).encode([*texts[:2], texts[0], "new"])  # a text that is there twice counts once
    assert encoder.counts == {"requests": 4, "texts": 9, "tokens": 27, "retries": 0, "cache_hits": 10}
    assert encoder.name == "m"
    assert encoder.encode([]).shape == (0, 0)


def test_queries_have_a_prompt_of_their_own(embeddings: tuple[str, type[Embeddings]], tmp_path: Path) -> None:
    encoder = EndpointEncoder(embeddings[0], model="m", prompt="passage: ", query_prompt="query: ")
    cache = VectorCache(encoder, tmp_path)
    torch.testing.assert_close(cache.encode(["x"]), expected("passage: x"))
    torch.testing.assert_close(query_encoder(cache).encode(["x"]), expected("query: x"))
    assert encoder.counts["requests"] == 2
    plain = EndpointEncoder(embeddings[0], model="m", prompt="passage: ")
    assert query_encoder(plain) is plain
    assert len({each.fingerprint for each in (encoder, encoder.for_queries, plain)}) == 3
    moved = EndpointEncoder("http://elsewhere/v1/", model="m", prompt="passage: ")
    assert moved.fingerprint == plain.fingerprint


def test_coheres_form_tells_queries_by_their_type(tmp_path: Path) -> None:
    class OfCohere(Embeddings):
        def reply(self, body: Any) -> tuple[int, Any]:
            self.requests.append(body | {"path": self.path})
            rows = [[float(len(text)), float(ord(text[0]))] for text in body["texts"]]
            return 200, {"embeddings": {"float": rows}, "meta": {"billed_units": {"input_tokens": 5}}}

    OfCohere.requests = []
    with listening(OfCohere) as address:
        types = {"input_type": "search_document", "query_input_type": "search_query"}
        encoder = EndpointEncoder(f"{address}/v2", model="m", wire="cohere", dimensions=2, **types)
        cache = VectorCache(encoder, tmp_path)
        torch.testing.assert_close(cache.encode(["xy", "z"]), expected("xy", "z"))
        torch.testing.assert_close(query_encoder(cache).encode(["xy"]), expected("xy"))  # not the passage's
    asked = {"model": "m", "output_dimension": 2, "embedding_types": ["float"], "path": "/v2/embed"}
    for request in OfCohere.requests:
        request["texts"].sort()
    assert OfCohere.requests == [
        asked | {"texts": ["xy", "z"], "input_type": "search_document"},
        asked | {"texts": ["xy"], "input_type": "search_query"},
    ]
    assert encoder.counts["tokens"] == 10
    with pytest.raises(ValueError, match="`wire` must be one of"):
        EndpointEncoder("http://host/v1", model="m", wire="other")


@pytest.mark.parametrize(
    "trouble",
    [(429, {}), (503, {}), (200, {"data": []}), (200, {"data": [{"index": 0, "embedding": [float("nan"), 0.0]}]})],
)
def test_what_fails_is_asked_again(embeddings: tuple[str, type[Embeddings]], trouble: tuple[int, Any]) -> None:
    url, handler = embeddings
    handler.troubles += [trouble, trouble]
    encoder = EndpointEncoder(url, model="m", pause=0.0)
    torch.testing.assert_close(encoder.encode(["abc"]), expected("abc"))
    assert len(handler.requests) == 3
    assert (encoder.counts["requests"], encoder.counts["retries"]) == (1, 2)
    handler.troubles += [trouble] * 2 + [(401, {"error": "no key"})]
    with pytest.raises(ValueError, match=r"no usable answer in 2 tries for 1 texts that begin with 'abc'"):
        EndpointEncoder(url, model="m", pause=0.0, max_retries=1).encode(["abc"])
    with pytest.raises(ValueError, match=r"embeddings refused with status 401"):
        encoder.encode(["abc"])
    assert len(handler.requests) == 6
    with pytest.raises(ValueError, match="`base_url`"):
        EndpointEncoder("http://me:secret@host/v1", model="m")


def test_a_run_reports_what_it_asked(
    embeddings: tuple[str, type[Embeddings]], run_command: Any, tmp_path: Path
) -> None:
    url, handler = embeddings
    handler.troubles.append((503, {}))
    texts = ["river", "a long stone", "some metal"]
    folder = write_dataset(
        tmp_path / "data",
        corpus=[{"_id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts)],
        queries=[{"_id": "q0", "text": "Which metal?"}],
        test=[("q0", "p2")],
    )
    expected = {"requests": 2, "texts": 4, "tokens": 12, "retries": 1, "cache_hits": 0}
    for run in ("first", "second"):
        run_command(
            "evaluate.py", "pipeline=vector_search", f"datasets=[{folder}]", "encoder=endpoint", "encoder.pause=0.0",
            f"encoder.base_url={url}", "encoder.model=m", f"paths.cache={tmp_path / 'cache'}",
            f"hydra.run.dir={tmp_path / run}",
        )  # fmt: skip
        found = json.loads((tmp_path / run / "metrics.json").read_text())["encoder_counts"]
        assert {**found, "cache_hits": 0} == expected
        expected = dict.fromkeys(expected, 0)
    assert found["cache_hits"] == 4
    note = "the encoder's endpoint, so far in this run: 2 requests, 4 texts, 12 tokens, 1 retries, 0 cache hits"
    assert note in (tmp_path / "first" / "report.md").read_text()
    assert json.loads((tmp_path / "first" / "metrics.json").read_text())["datasets"]["data"]["notes"] == [note]


class Short(Embeddings):
    """Refuses texts and requests that are too long, as vLLM and OpenAI do."""

    def reply(self, body: Any) -> tuple[int, Any]:
        sizes = [len(text) for text in body["input"]]
        if max(sizes) > 100 or sum(sizes) > 300:
            type(self).requests.append(body)
            return 400, {"error": {"message": "maximum context length exceeded"}}
        return super().reply(body)


@pytest.fixture
def short() -> Iterator[EndpointEncoder]:
    handler = type("Own", (Short,), {"requests": [], "troubles": []})
    with listening(handler) as address:
        yield EndpointEncoder(f"{address}/v1", model="m", pause=0.0)


def test_a_text_that_is_too_long_is_named(short: EndpointEncoder, tmp_path: Path) -> None:
    texts = ["a", "b" * 40, "c" * 101, "d" * 3]
    message = r"400: .*maximum context length exceeded.*, for a text of 101 characters that begins with 'ccc"
    for encoder in (short, VectorCache(short, tmp_path)):
        with pytest.raises(RefusedTextError, match=message) as raised:
            encoder.encode(texts)
        assert raised.value.text == texts[2]
        with pytest.raises(ValueError, match=f"passage 'p2': .*{message}.*accepts a text of 1 characters"):
            encode_passages(encoder, [f"p{number}" for number in range(4)], texts)
    with pytest.raises(RefusedTextError, match=message):
        short.encode(texts[2:3])


def test_a_batch_that_is_too_long_is_named(short: EndpointEncoder) -> None:
    with pytest.raises(ValueError, match=r"4 texts of 320 characters, but accepts the longest .*Reduce `batch_size`"):
        short.encode(["a" * 80] * 4)


def test_a_refusal_for_another_reason_names_no_text(embeddings: tuple[str, type[Embeddings]]) -> None:
    url, handler = embeddings
    handler.troubles += [(400, {"error": "no such model"})] * 2
    with pytest.raises(EndpointError, match=r"refused with status 400: .*no such model[^,]*$"):
        EndpointEncoder(url, model="m", pause=0.0).encode(["a", "bb"])


def test_the_vectors_of_a_data_set_name_the_passage(short: EndpointEncoder, tmp_path: Path) -> None:
    corpus = [{"_id": "x", "title": "", "text": "short"}, {"_id": "y", "title": "", "text": "c" * 101}]
    queries = [{"_id": "q", "text": "c"}]
    folder = write_dataset(tmp_path / "data", corpus=corpus, queries=queries, test=[("q", "x")])
    with pytest.raises(ValueError, match=r"passage 'y': .* for a text of 101 characters"):
        with_vectors(Dataset.from_folder(folder), short, tmp_path / "cache")
