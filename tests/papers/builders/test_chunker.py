import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from graphrerank_papers.builders.chunker import Chunk, Unit, chunk_document


def check_laws(text: str, chunks: list[Chunk], max_size: int, unit: Unit) -> None:
    """What must hold of every chunking: slices, sizes, order, numbers, and no character lost but white space."""
    covered = set()
    for number, chunk in enumerate(chunks):
        assert (chunk.chunk_id, chunk.text) == (number, text[chunk.start : chunk.stop])
        assert chunk.text == chunk.text.strip() != ""
        assert (len(chunk.text.split()) if unit == "words" else len(chunk.text)) <= max_size
        covered.update(range(chunk.start, chunk.stop))
    assert all(a.start < b.start and a.stop < b.stop for a, b in pairwise(chunks))
    assert all(char.isspace() for place, char in enumerate(text) if place not in covered)


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize("seed", range(4))
def test_laws_on_random_text(seed: int, unit: Unit) -> None:
    draw = random.Random(seed)
    tokens = ["word", "Long-word-with-many-letters", "A.", "end.", "End?", "x!", "\n\n", "中文。", "Dr.", "3.5"]
    text = " ".join(draw.choices(tokens, k=300))
    for max_size in (1, 7, 30):
        chunks = chunk_document("d", text, max_size=max_size, overlap=max_size // 3, unit=unit)
        check_laws(text, chunks, max_size, unit)


def test_overlap_repeats_whole_sentences() -> None:
    text = "One two three. Four five. Six seven eight. Nine."
    chunks = chunk_document("d", text, max_size=6, overlap=3)
    assert [chunk.text for chunk in chunks] == [
        "One two three. Four five.",
        "Four five. Six seven eight. Nine.",
    ]
    assert [chunk.text for chunk in chunk_document("d", text, max_size=6, overlap=0)] == [
        "One two three. Four five.",
        "Six seven eight. Nine.",
    ]


def test_a_long_sentence_is_cut_between_words() -> None:
    chunks = chunk_document("d", "alpha beta gamma delta.", max_size=11, overlap=0, unit="characters")
    assert [chunk.text for chunk in chunks] == ["alpha beta", "gamma", "delta."]
    chunks = chunk_document("d", "abcdefghij kl", max_size=4, overlap=0, unit="characters")
    assert [chunk.text for chunk in chunks] == ["abcd", "efgh", "ij", "kl"]
    assert chunk_document("d", " \n ") == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"max_size": 0}, "`max_size`"), ({"max_size": 9, "overlap": 5}, "its half, got 9, 5"), ({"unit": "x"}, "`unit`")],
)
def test_errors(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chunk_document("d", "a", **settings)


def test_laws_on_real_transcripts(datasets: Path) -> None:
    lines = (datasets / "kevin_scott_podcast" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    text = "\n\n".join(json.loads(line)["text"] for line in lines)
    chunks = chunk_document("podcast", text)
    check_laws(text, chunks, 200, "words")
    assert sum(len(chunk.text.split()) for chunk in chunks) / len(chunks) > 120  # chunks are filled
