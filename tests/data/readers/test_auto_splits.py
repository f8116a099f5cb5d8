import math
import random
import re
from collections import Counter
from itertools import combinations

import pytest

from graphrerank.data.readers.auto_splits import AUTO_DOCUMENTS, SAME, divide_queries, near_duplicates

WORDS = [
    "river",
    "stone",
    "metal",
    "cloud",
    "forest",
    "engine",
    "violin",
    "planet",
    "bread",
    "castle",
    "Straße",
    "東京",
]


def questions(count: int, seed: int = 0) -> list[str]:
    """Draw questions of one template, some of them again with other case and punctuation, or a word more."""
    rng, drawn = random.Random(seed), []
    for number in range(count):
        if number % 5 == 4:
            again = rng.choice(drawn)
            drawn.append(rng.choice([again.upper(), again.replace(" ", "  ") + "?!", again + " " + rng.choice(WORDS)]))
        else:
            drawn.append(f"Which {rng.choice(WORDS)} has {' '.join(rng.choices(WORDS, k=rng.randint(1, 4)))}?")
    return drawn


def naive_pairs(texts: list[str]) -> set[tuple[int, int]]:
    """Compare every pair by the equation of the module."""
    normal = [re.sub(r"[\W_]+", " ", text.lower()).strip() for text in texts]
    grams = [{f" {text} "[i : i + 3] for i in range(len(text))} for text in normal]
    distinct = dict(zip(normal, grams, strict=True))
    counts = Counter(gram for own in distinct.values() for gram in own)
    weight = {gram: math.log(1 + len(distinct) / count) for gram, count in counts.items()}

    def alike(x: set[str], y: set[str]) -> bool:
        return sum(weight[g] for g in x & y) >= SAME * sum(weight[g] for g in x | y) - 1e-6

    return {(i, j) for i, j in combinations(range(len(texts)), 2) if alike(grams[i], grams[j])}


@pytest.mark.parametrize("seed", range(4))
def test_against_every_pair(seed: int) -> None:
    """Pairs of equal texts are chained, not listed each with each, and so are pairs with one of them."""
    texts = questions(120, seed)
    naive, found = naive_pairs(texts), set(near_duplicates(texts))
    assert found <= naive
    assert len(found) > 5
    assert _components(len(texts), found) == _components(len(texts), naive)


def _components(count: int, pairs: set[tuple[int, int]]) -> set[frozenset[int]]:
    group = {number: {number} for number in range(count)}
    for one, other in pairs:
        if group[one] is not group[other]:
            group[one] |= group[other]
            for member in group[other]:
                group[member] = group[one]
    return {frozenset(members) for members in group.values()}


@pytest.mark.parametrize("seed", range(4))
def test_no_near_duplicates_on_both_sides(seed: int) -> None:
    texts = questions(200, seed)
    split_of = divide_queries(texts)
    assert all(split_of[one] == split_of[other] for one, other in naive_pairs(texts))
    assert set(split_of) == {"train", "val", "test"}


def test_shares_of_many_questions() -> None:
    """Large groups are no more likely to be in one split than small ones."""
    texts = [f"{word} {number * 7919 % 100003}" for number in range(4000) for word in ("violin", "castle")]
    for chosen in (texts, [text for text in texts[::2] for text in (text, text.upper(), text + "!")]):
        count = Counter(divide_queries(chosen))
        assert count["train"] / len(chosen) == pytest.approx(0.8, abs=0.03)
        assert count["val"] / len(chosen) == pytest.approx(0.1, abs=0.02)


def test_the_split_of_a_question_does_not_depend_on_the_others() -> None:
    texts = [f"{word} of {other} {number}" for number, (word, other) in enumerate(combinations(WORDS, 2))]
    assert list(near_duplicates(texts)) == []
    whole = dict(zip(texts, divide_queries(texts), strict=True))
    part = texts[::-2]
    assert list(near_duplicates(part)) == []
    assert divide_queries(part) == [whole[text] for text in part]


def test_questions_with_a_common_document_are_together() -> None:
    texts = [f"{word} of {other} {number}" for number, (word, other) in enumerate(combinations(WORDS, 2))]
    documents = [[number // 3, f"own {number}"] for number in range(len(texts))]
    split_of = divide_queries(texts, documents)
    assert all(len(set(split_of[start : start + 3])) == 1 for start in range(0, len(texts), 3))
    assert split_of != divide_queries(texts)
    with pytest.raises(ValueError, match=rf"`splits={AUTO_DOCUMENTS}` must give each split .* in 1 groups; by place"):
        divide_queries(texts, [["one"]] * len(texts))


def test_too_few_questions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"got none in \['.*'\] of 2 questions .*'data\.splits=\{train: \"FILE\[:80%\]"
    ):
        divide_queries(["one river", "two stones"])
