import random
import threading
from concurrent.futures import ThreadPoolExecutor

import bm25s
import pytest

from graphrerank.features import word_table
from graphrerank.features.word_table import WordTable
from graphrerank.text import lead, words

FRAGMENTS = [
    "The", "running", "HTTPServer", "top10", "a_b", "it's", "Who?", "x", "\n", ". ", " ", "", "\0", "shippedDate",
    "ΛΔΓΣ", "ΛΔΓΣ'Δ", "Σ", "ΔΣ.Γ", "σς", "İstanbul", "straße", "ﬁ", "Ⅷ", "²", "é", "e\u0301", "\u00ad", "中文",
    "\ud800", "\x1c", "\x85", "😀", "w" * 3000, "_", "__a", "-", ":", "; ",
]  # fmt: skip


def spelled(table: WordTable, texts: list[str]) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Tokens, stems and stems of the leads of each text, by a table of words that were added in any order."""
    tokens = {number: word for word, number in table._token_numbers.items()}
    stems = {number: word for word, number in table._stem_numbers.items()}
    read = table.read(texts)
    rows: tuple[list[list[str]], ...] = tuple([[] for _ in texts] for _ in range(3))
    tokens |= {number: word for word, number in table._token_numbers.items()}
    stems |= {number: word for word, number in table._stem_numbers.items()}
    for token, text in zip(read.tokens.tolist(), read.text_of_token.tolist(), strict=True):
        rows[0][text].append(tokens[token])
    for stem, text, in_lead in zip(read.stems.tolist(), read.text_of_stem.tolist(), read.in_lead.tolist(), strict=True):
        rows[1][text].append(stems[stem])
        if in_lead:
            rows[2][text].append(stems[stem])
    return rows[0], rows[1], rows[2]


@pytest.mark.parametrize("seed", range(4))
def test_against_bm25s_and_text_by_text(seed: int) -> None:
    rng = random.Random(seed)
    table = WordTable()
    for _ in range(150):
        separator = rng.choice(["", " "])
        texts = [separator.join(rng.choices(FRAGMENTS, k=rng.randint(0, 12))) for _ in range(rng.randint(0, 6))]
        tokens, stems, leads = spelled(table, texts)
        assert tokens == bm25s.tokenize(texts, stopwords="en", return_ids=False, show_progress=False)
        assert stems == [words(text) for text in texts]
        assert leads == [words(lead(text)) for text in texts]


def test_every_character_is_split_as_by_bm25s() -> None:
    texts = [f"ab{chr(code)}cd {chr(code)}{chr(code)}" for code in range(0x110000)]
    tokens, stems, _ = spelled(WordTable(), texts[::7])
    assert tokens == bm25s.tokenize(texts[::7], stopwords="en", return_ids=False, show_progress=False)
    assert stems[:20_000] == [words(text) for text in texts[: 7 * 20_000 : 7]]


def test_long_texts_are_read_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["One two. Three", "ΔΣ'Δ four", "", "five six"] * 3
    table, calls = WordTable(), list[None]()
    whole = table.read(texts)
    monkeypatch.setattr(word_table, "BLOCK_CHARS", 16)
    found = table.read(texts, check=lambda: calls.append(None))
    assert len(calls) > 3
    for name in ("tokens", "text_of_token", "stems", "text_of_stem", "in_lead"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()


def test_many_threads_share_a_table() -> None:
    table, start = WordTable(), threading.Barrier(8)
    texts = [f"word{number} other{number // 3}" for number in range(500)]

    def read(_: int) -> list[int]:
        start.wait()
        return [token for text in texts for token in table.read([text]).tokens.tolist()]

    with ThreadPoolExecutor(8) as pool:
        assert len(set(map(tuple, pool.map(read, range(8))))) == 1
    assert spelled(table, texts)[0] == [text.split() for text in texts]
