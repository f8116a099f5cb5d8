import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import pytest

from graphrerank.features import shared_words, word_table
from graphrerank.features.shared_words import SharedWords, words_of
from graphrerank.features.word_table import TextWords, WordTable


def no_check() -> None:
    pass


def as_lists(words: TextWords) -> list[object]:
    return [getattr(words, field.name) if field.name == "num_texts" else getattr(words, field.name).tolist()
            for field in fields(words)]  # fmt: skip


def test_kept_words_are_those_of_the_table() -> None:
    rng = random.Random(0)
    pool = ["Red apples. A pear", "", "the of", "HTTPServer. top10", "ΓΣ'Δ end", "A title\nand more", "x" * 50, "."]
    shared = SharedWords()
    for _ in range(100):
        texts = rng.choices(pool, k=rng.randint(1, 6))
        read, table = shared.read(texts, check=no_check)
        assert as_lists(read) == as_lists(table.read(texts))


def test_a_text_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedWords()
    shared.read(["one two", "three"], check=no_check)
    asked: list[list[str]] = []
    read = WordTable.read
    monkeypatch.setattr(WordTable, "read", lambda self, texts, **more: asked.append(texts) or read(self, texts, **more))
    shared.read(["three", "four", "one two", "four"], check=no_check)
    assert asked == [["four"]]


def test_texts_are_dropped_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = SharedWords()
    monkeypatch.setattr(shared_words, "KEPT_BYTES", 10_000)
    for number in range(200):
        read, _ = shared.read([f"text {number}"], check=no_check)
        assert len(read.tokens) == 1 + (number > 9)
        assert len(shared._entries) <= 10_000 // shared_words.ENTRY_BYTES


def test_it_starts_anew_with_a_full_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "FULL_RUNS", 10)
    shared = SharedWords()
    _, first = shared.read([" ".join(f"run{number}" for number in range(20))], check=no_check)
    again, second = shared.read(["run0 run1"], check=no_check)
    assert first.is_full
    assert second is not first
    assert again.tokens.tolist() == [0, 1]
    assert shared.read(["run3"], check=no_check)[1] is second


def test_many_characters_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_words, "PRIVATE_CHARS", 8)
    shared = words_of(["short"])[1]
    assert words_of(["a longer text"])[1] is not shared
    assert words_of(["short"])[1] is shared


def test_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "FULL_RUNS", 300)
    monkeypatch.setattr(shared_words, "KEPT_BYTES", 20_000)
    shared = SharedWords()

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        texts = [f"word{rng.randrange(500)} other{rng.randrange(50)}" for _ in range(5)]
        found, table = shared.read(texts, check=no_check)
        return as_lists(found) == as_lists(table.read(texts))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(2000)))
