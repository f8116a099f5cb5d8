import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from graphrerank_papers.builders.chunker import Unit, split_chunks


def check_laws(text: str, max_size: int, overlap: int, unit: Unit) -> list[str]:
    """Check sizes, order, and that no character except white space is lost, and return the chunks."""
    spans = split_chunks(text, max_size=max_size, overlap=overlap, unit=unit)
    chunks = [text[start:stop] for start, stop in spans]
    assert all(chunk == chunk.strip() != "" for chunk in chunks)
    assert all((len(chunk.split()) if unit == "words" else len(chunk)) <= max_size for chunk in chunks)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(spans))
    covered = {position for span in spans for position in range(*span)}
    assert all(char.isspace() for position, char in enumerate(text) if position not in covered)
    return chunks


@pytest.mark.parametrize("unit", ["words", "characters"])
@pytest.mark.parametrize("seed", range(4))
def test_laws_on_random_text(seed: int, unit: Unit) -> None:
    draw = random.Random(seed)
    tokens = ["word", "Long-word-with-many-letters", "A.", "end.", "End?", "x!", "\n\n", "中文。", "Dr.", "3.5"]
    text = " ".join(draw.choices(tokens, k=300))
    for max_size in (1, 7, 30):
        check_laws(text, max_size, max_size // 3, unit)


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        ("One two three. Four five. Six seven.", {"max_size": 26}, ["One two three. Four five.", "Six seven."]),
        ("One two three. Four five. Six seven eight. Nine.", {"max_size": 6, "overlap": 3, "unit": "words"},
         ["One two three. Four five.", "Four five. Six seven eight. Nine."]),
        ("One two three. Four five. Six seven eight. Nine.", {"max_size": 6, "unit": "words"},
         ["One two three. Four five.", "Six seven eight. Nine."]),
        ("alpha beta gamma delta.", {"max_size": 11},
         ["alpha beta", "gamma", "delta."]),
        ("abcdefghij kl", {"max_size": 4}, ["abcd", "efgh", "ij", "kl"]),
        (" \n ", {"max_size": 9}, []),
    ],
)  # fmt: skip
def test_overlap_repeats_whole_sentences_and_long_ones_are_cut(
    text: str, settings: dict[str, Any], expected: list[str]
) -> None:
    assert [text[start:stop] for start, stop in split_chunks(text, **settings)] == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_size": 0}, "`max_size` must be a positive integer, got 0"),
        ({"max_size": 9, "overlap": 5}, "`overlap` must be between 0 and half of `max_size`, got 5 of 9"),
        ({"max_size": 9, "unit": "tokens"}, r"`unit` must be one of \['words', 'characters'\], got 'tokens'"),
    ],
)
def test_invalid_arguments_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_chunks("a", **settings)


def test_laws_on_real_transcripts(datasets: Path) -> None:
    lines = (datasets / "kevin_scott_podcast" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:40]
    chunks = check_laws("\n\n".join(json.loads(line)["text"] for line in lines), 200, 40, "words")
    assert sum(len(chunk.split()) for chunk in chunks) / len(chunks) > 120  # chunks are filled
