import random

import pytest

from graphrerank.corpus import PackedStrings

STRINGS = ["", "a", "é", "\ud800 alone", "\U0001f600", "line\nbreak", "a" * 300]


def test_against_a_list() -> None:
    packed = PackedStrings.of(STRINGS)
    assert list(packed) == STRINGS
    assert len(packed) == len(STRINGS)
    assert [packed[i] for i in range(-len(STRINGS), 0)] == STRINGS
    assert packed[1:4] == STRINGS[1:4]
    assert packed[::-2] == STRINGS[::-2]
    assert PackedStrings.of([])[:] == []
    for index in (len(STRINGS), -len(STRINGS) - 1):
        with pytest.raises(IndexError, match=f"got {index}"):
            packed[index]


@pytest.mark.parametrize("seed", range(5))
def test_rank_against_index(seed: int) -> None:
    rng = random.Random(seed)
    words = {"".join(rng.choices("abé\U0001f600", k=rng.randint(0, 4))) for _ in range(rng.randint(0, 80))}
    ascending = sorted(words, key=str.encode)
    packed = PackedStrings.of(ascending)
    assert [packed.rank(word) for word in ascending] == list(range(len(ascending)))
    others = {"".join(rng.choices("abcé", k=rng.randint(0, 4))) for _ in range(80)} - words
    assert {packed.rank(word) for word in others} <= {-1}
