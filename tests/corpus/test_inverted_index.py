"""Postings of words, of selections and of added texts, against a loop over the texts."""

import random
from collections import Counter

import numpy as np
import pytest

from graphrerank.corpus import PackedStrings
from graphrerank.corpus.inverted_index import AddedTokens, Postings, TextStems, Vocabulary

WORDS = ["a", "b", "c", "d"]


def postings(texts: list[str], num_prepared: int) -> Postings:
    """Index texts of one-letter words, all from ``num_prepared`` on as added ones."""
    counts = [Counter(text) for text in texts]
    prepared = [
        [(number, count[word]) for number, count in enumerate(counts[:num_prepared]) if count[word]] for word in WORDS
    ]
    added = [sorted((WORDS.index(word), n) for word, n in count.items()) for count in counts[num_prepared:]]
    rows = [pair for row in prepared for pair in row]
    more = [pair for row in added for pair in row]
    return Postings(
        Vocabulary(PackedStrings.of(WORDS), 3),
        np.cumsum([0, *map(len, prepared)]),
        np.array([number for number, _ in rows], dtype=np.int32),
        np.array([n for _, n in rows], dtype=np.int32),
        np.array(list(map(len, texts)), dtype=np.int32),
        sum(map(len, texts)),
        AddedTokens(
            num_prepared,
            np.cumsum([0, *map(len, added)]),
            np.array([token for token, _ in more], dtype=np.int32),
            np.array([n for _, n in more], dtype=np.int32),
        ),
    )


def by_loop(texts: list[str], word: str) -> list[tuple[int, int]]:
    return [(number, text.count(word)) for number, text in enumerate(texts) if word in text]


@pytest.mark.parametrize("seed", range(5))
def test_postings_against_a_loop(seed: int) -> None:
    rng = random.Random(seed)
    texts = ["".join(rng.choices(WORDS, k=rng.randint(0, 5))) for _ in range(9)]
    index = postings(texts, 6)
    nodes = sorted(rng.sample(range(9), 5))
    chosen = [texts[node] for node in nodes]
    part = index.select(np.array(nodes))
    for found, expected in ((index, texts), (part, chosen), (part.compacted(), chosen)):
        assert (found.num_texts, found.num_tokens) == (len(expected), sum(map(len, expected)))
        for word in [*WORDS, "other"]:
            assert list(zip(*map(np.ndarray.tolist, found.lookup(word)), strict=True)) == by_loop(expected, word)
    assert part.whole is None
    assert index.select(np.array(nodes), own_statistics=False).whole is index


def test_stems_of_a_selection_by_hand() -> None:
    words = Vocabulary(PackedStrings.of(["x", "y"]), 2)
    lead = np.array([True, False, True])
    stems = TextStems(words, np.array([0, 2, 2, 3]), np.array([0, 1, 1], np.int32), lead, np.array([1, 2]), 3)
    part = stems.select(np.array([1, 2]))
    assert (part.num_texts, part.texts_with.tolist(), part.rows.tolist()) == (2, [0, 1], [1, 2])
    assert stems.select(np.array([2]), own_statistics=False).texts_with.tolist() == [1, 2]


def test_words_that_are_sorted_and_added() -> None:
    words = Vocabulary(PackedStrings.of(["b", "d", "a"]), 2)
    assert [words.rank(word) for word in ("b", "d", "a", "c")] == [0, 1, 2, -1]
    assert list(words) == ["b", "d", "a"]
