import random
from itertools import pairwise

import pytest

from graphrerank_papers.builders.chunker import split_chunks


@pytest.mark.parametrize("seed", range(4))
def test_laws_on_random_text(seed: int) -> None:
    """What must hold of every chunking: sizes, order, and no character lost but white space."""
    draw = random.Random(seed)
    tokens = ["word", "Long-word-with-many-letters", "A.", "end.", "End?", "x!", "\n\n", "中文。", "Dr.", "3.5"]
    text = " ".join(draw.choices(tokens, k=300))
    for max_size in (1, 7, 30):
        spans = split_chunks(text, max_size=max_size)
        chunks = [text[start:stop] for start, stop in spans]
        assert all(chunk == chunk.strip() != "" for chunk in chunks)
        assert all(len(chunk) <= max_size for chunk in chunks)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        covered = {place for span in spans for place in range(*span)}
        assert all(char.isspace() for place, char in enumerate(text) if place not in covered)


@pytest.mark.parametrize(
    ("text", "max_size", "expected"),
    [
        ("One two three. Four five. Six seven.", 26, ["One two three. Four five.", "Six seven."]),
        ("alpha beta gamma delta.", 11, ["alpha beta", "gamma", "delta."]),
        ("abcdefghij kl", 4, ["abcd", "efgh", "ij", "kl"]),
        (" \n ", 9, []),
    ],
)
def test_long_sentences_are_cut(text: str, max_size: int, expected: list[str]) -> None:
    assert [text[start:stop] for start, stop in split_chunks(text, max_size=max_size)] == expected


def test_a_size_is_positive() -> None:
    with pytest.raises(ValueError, match="`max_size` must be a positive integer, got 0"):
        split_chunks("a", max_size=0)
