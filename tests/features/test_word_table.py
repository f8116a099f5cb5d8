import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields

import bm25s
import numpy as np
import pytest

from graphrerank.features import word_table
from graphrerank.features.word_table import SharedWords, TextWords, WordTable, words_of
from graphrerank.text import lead, words
from graphrerank.text.characters import matched_form

FRAGMENTS = [
    "The", "running", "HTTPServer", "top10", "a_b", "it's", "Who?", "x", "\n", ". ", " ", "", "\0", "shippedDate",
    "ΛΔΓΣ", "ΛΔΓΣ'Δ", "Σ", "ΔΣ.Γ", "σς", "İstanbul", "straße", "ﬁ", "Ⅷ", "²", "é", "e\u0301", "\u00ad", "中文",
    "\ud800", "\x1c", "\x85", "😀", "w" * 3000, "_", "__a", "-", ":", "; ",
]  # fmt: skip


def spelled(table: WordTable, texts: list[str]) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Tokens, stems and stems of the leads of each text, by a table of words that were added in any order."""
    read = table.read(texts)
    tokens, stems = table.token_words, table.stem_words
    rows: tuple[list[list[str]], ...] = tuple([[] for _ in texts] for _ in range(3))
    for token, text in zip(read.tokens.tolist(), read.text_of_token.tolist(), strict=True):
        rows[0][text].append(tokens[token])
    for stem, text, in_lead in zip(read.stems.tolist(), read.text_of_stem.tolist(), read.in_lead.tolist(), strict=True):
        rows[1][text].append(stems[stem])
        if in_lead:
            rows[2][text].append(stems[stem])
    return rows[0], rows[1], rows[2]


@pytest.mark.parametrize("seed", range(4))
def test_against_bm25s_and_text_by_text(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "BLOCK_TEXTS", 4)
    rng = random.Random(seed)
    table = WordTable()
    for _ in range(150):
        separator = rng.choice(["", " "])
        texts = [separator.join(rng.choices(FRAGMENTS, k=rng.randint(0, 12))) for _ in range(rng.randint(0, 6))]
        tokens, stems, leads = spelled(table, texts)
        texts = [matched_form(text) for text in texts]
        assert tokens == bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
        assert stems == [words(text) for text in texts]
        assert leads == [words(lead(text)) for text in texts]


def test_every_character_is_split_as_by_bm25s() -> None:
    texts = [f"ab{chr(code)}cd {chr(code)}{chr(code)}" for code in range(0, 0x110000, 7)]
    tokens, stems, _ = spelled(WordTable(), texts)
    texts = [matched_form(text) for text in texts]
    assert tokens == bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
    assert stems[:20_000] == [words(text) for text in texts[:20_000]]


def as_lists(words: TextWords) -> list[object]:
    return [np.asarray(getattr(words, field.name)).tolist() for field in fields(words)]


def test_kept_words_are_those_of_the_table_and_a_text_is_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, split = random.Random(0), list[str]()
    pool = ["Red apples. A pear", "", "the of", "HTTPServer. top10", "ΓΣ'Δ end", "A title\nand more", "x" * 50, "."]
    shared, entries = SharedWords(), WordTable.entries
    for _ in range(100):
        texts = rng.choices(pool, k=rng.randint(1, 6))
        with monkeypatch.context() as patch:
            patch.setattr(WordTable, "entries", lambda self, texts: split.extend(texts) or entries(self, texts))
            read, table = shared.read(texts)
        assert as_lists(read) == as_lists(table.read(texts))
    assert sorted(split) == sorted(pool)


def test_it_starts_again_beyond_the_limit_of_runs_or_of_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "KEPT_BYTES", 10_000)
    shared = SharedWords()
    for number in range(200):
        read, _ = shared.read([f"text {number}"])
        assert len(read.tokens) == 1 + (number > 9)
        assert len(shared._entries) <= 1 + 10_000 // word_table.TEXT_BYTES
    _, first = shared.read([" ".join(f"run{number}" for number in range(20))])
    again, second = shared.read(["run0 run1"])
    assert second is not first
    assert again.tokens.tolist() == [0, 1]
    assert shared.read(["run3"])[1] is second


def test_many_characters_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "PRIVATE_CHARS", 8)
    shared = words_of(["short"])[1]
    assert words_of(["a longer text"])[1] is not shared
    assert words_of(["short"])[1] is shared


def test_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_table, "KEPT_BYTES", 50_000)
    shared = SharedWords()

    def read(seed: int) -> bool:
        rng = random.Random(seed)
        texts = [f"word{rng.randrange(500)} other{rng.randrange(50)}" for _ in range(5)]
        found, table = shared.read(texts)
        return as_lists(found) == as_lists(table.read(texts))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(2000)))
