"""Compressed bodies: the decoder against gzip itself, and bombs over HTTP."""

import gzip
import json
import tracemalloc
import zlib

import pytest

from graphrerank.serving.body_decoder import PIECE_BYTES, BodyDecoder
from graphrerank.serving.engine import Refusal
from graphrerank.serving.limits import Limits
from tests.support.client import TestClient

BODY = {"query": "a plum", "documents": ["a plum", "a pear", "a fig"]}
TEXT = json.dumps(BODY).encode()


def decoded(content: bytes, size: int, encoding: str = "gzip") -> bytes:
    """Decode a body that arrives in chunks of a size."""
    decoder = BodyDecoder(encoding)
    pieces = [piece for i in range(0, len(content), size) for piece in decoder.pieces(content[i : i + size])]
    decoder.finish()
    assert all(pieces)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [1, 7, 1000, 10**6])
def test_against_gzip(size: int) -> None:
    for text in (b"", TEXT, bytes(range(256)) * 1000, b"a" * (3 * PIECE_BYTES + 1)):
        members = gzip.compress(text) + gzip.compress(TEXT) + gzip.compress(text)
        assert decoded(members, size) == gzip.decompress(members)
        assert decoded(gzip.compress(text), size, " X-GZIP ") == text
        assert decoded(text, size, "") == decoded(text, size, "identity") == text
    assert decoded(b"", size) == b""


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        gzip.compress(TEXT)[:-1],
        gzip.compress(TEXT) + b"more",
        zlib.compress(TEXT),
        gzip.compress(TEXT)[:-8] + b"0" * 8,
    ],
    ids=["plain", "cut", "trailing bytes", "zlib", "wrong checksum"],
)
def test_what_is_no_gzip(content: bytes) -> None:
    with pytest.raises(Refusal, match="must be complete gzip data"):
        decoded(content, 100)


def test_a_piece_is_small_whatever_the_ratio() -> None:
    bomb = gzip.compress(bytes(50_000_000))
    decoder = BodyDecoder("gzip")
    tracemalloc.start()
    first = next(decoder.pieces(bomb))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(first) == PIECE_BYTES
    assert peak < 1_000_000


@pytest.fixture(scope="module")
def client(make_app):
    return TestClient(make_app(Limits(body_bytes=10_000)))


def post(client, content, encoding="gzip", path="/v2/rerank"):
    headers = {"content-type": "application/json"} | ({"content-encoding": encoding} if encoding else {})
    return client.post(path, content=content, headers=headers)


def test_gzip_and_byte_order_marks_over_http(client):
    expected = post(client, TEXT, None).json()["results"]
    for content, encoding in (
        (gzip.compress(TEXT), "gzip"),
        (b"\xef\xbb\xbf" + TEXT, None),
        (gzip.compress(b"\xef\xbb\xbf" + TEXT), "gzip"),
        (TEXT, "identity"),
    ):
        response = post(client, content, encoding)
        assert response.status_code == 200
        assert response.json()["results"] == expected


@pytest.mark.parametrize(
    ("content", "encoding", "status", "message"),
    [
        (gzip.compress(b" " * 10_001), "gzip", 413, "body: must have at most 10000 bytes"),
        (gzip.compress(bytes(20_000_000)), "gzip", 413, "body: must have at most 10000 bytes"),
        (gzip.compress(gzip.compress(TEXT)), "gzip", 400, "must be JSON in UTF-8"),
        (TEXT, "gzip", 400, "must be complete gzip data"),
        (TEXT, "br", 415, "`content-encoding` must be gzip"),
        (TEXT, "gzip, gzip", 415, "`content-encoding` must be gzip"),
        ("\ufeff".encode("utf-16"), None, 400, "must be JSON in UTF-8"),
        (b"\xef\xbb\xbf", None, 400, "must be JSON in UTF-8"),
    ],
    ids=["too large", "bomb", "twice", "plain", "brotli", "two encodings", "UTF-16", "mark alone"],
)
def test_bodies_that_are_refused(client, content, encoding, status, message):
    response = post(client, content, encoding)
    assert response.status_code == status
    assert message in response.json()["message"]
    assert post(client, TEXT, None).status_code == 200


def test_no_bytes_are_held_after_a_refusal(make_app):
    """The limit on held bytes would refuse later requests otherwise."""
    client = TestClient(make_app(Limits(body_bytes=10_000, held_bytes=30_000)))
    for _ in range(10):
        assert post(client, gzip.compress(bytes(1_000_000))).status_code == 413
    assert post(client, gzip.compress(TEXT)).status_code == 200
