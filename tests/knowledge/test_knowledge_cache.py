from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, Relation
from graphrerank.utils.caching import BlobStore, hash_text


class Reader:
    """Joins each word of a text with the next, and keeps every text it was asked about."""

    def __init__(self, fingerprint: str = "one") -> None:
        self.fingerprint = fingerprint
        self.asked: list[str] = []
        self.refuses: list[str] = []
        self.skipped: list[str] = []

    def extract(self, texts: Sequence[str]) -> list[Knowledge]:
        self.asked += texts
        self.skipped = [text for text in texts if text in self.refuses]
        return [self._read(text) for text in texts]

    def _read(self, text: str) -> Knowledge:
        if text in self.skipped:
            return Knowledge()
        words = list(dict.fromkeys(text.split()))
        relations = [Relation(a, "then", b, text) for a, b in pairwise(words)]
        return Knowledge(tuple(Entity(word, "é", text) for word in words), tuple(relations))


TEXTS = ["a b c", "", "d e", "a b c", "\ud800 f", "g"]


def test_nothing_is_read_twice(tmp_path: Path) -> None:
    reader = Reader()
    expected = Reader().extract(TEXTS)
    assert KnowledgeCache(reader, tmp_path).extract(TEXTS) == expected
    assert sorted(reader.asked) == sorted(set(TEXTS))
    again = Reader()
    assert KnowledgeCache(again, tmp_path).extract([*TEXTS, "new"])[:-1] == expected
    assert again.asked == ["new"]
    other = Reader("two")
    KnowledgeCache(other, tmp_path).extract(["g"])
    assert other.asked == ["g"]


def test_what_is_skipped_is_asked_again(tmp_path: Path) -> None:
    first, second = Reader(), Reader()
    first.refuses = ["d e"]
    assert KnowledgeCache(first, tmp_path).extract(TEXTS)[2] == Knowledge()
    assert KnowledgeCache(second, tmp_path).extract(TEXTS) == Reader().extract(TEXTS)
    assert second.asked == ["d e"]


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    cache = KnowledgeCache(Reader(), tmp_path)
    cache.extract(["a"])
    cache.path.write_bytes(b"no database" * 100)
    with pytest.raises(ValueError, match=rf"{cache.path}: damaged cache .* delete this file"):
        cache.extract(["a"])
    cache.path.unlink()
    BlobStore(cache.path, "knowledge").add([hash_text("a")], [b'{"entities": [["a", ""]]}'])
    with pytest.raises(ValueError, match=rf"{cache.path}: damaged cache .* delete this file"):
        cache.extract(["a"])
