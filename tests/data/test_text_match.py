import math
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from graphrerank.data.text_match import MATCH_FEATURES, TextMatch, lead, words

TEXTS = [
    "Solaris. A 1972 film directed by Andrei Tarkovsky.",
    "Andrei Tarkovsky. Born in Zavrazhye, buried in Paris.",
    "Paris. The capital of France.",
    "Stalker. A film of 1979 directed by Andrei Tarkovsky.",
    "",
    "the of and",
]
QUERIES = ["Where was the director of the film Solaris buried?", "capital of France", "zzz unknown", "the of"]


def weight(word: str, texts: Sequence[str]) -> float:
    count = sum(word in words(text) for text in texts)
    return math.log(1 + (len(texts) - count + 0.5) / (count + 0.5))


def coverage(query: str, held: set[str], texts: Sequence[str]) -> float:
    asked = set(words(query))
    total = sum(weight(word, texts) for word in asked)
    return sum(weight(word, texts) for word in asked & held) / total if total else 0.0


def by_the_book(
    texts: Sequence[str], query: str, nodes: Sequence[int], edges: set[tuple[int, int]]
) -> list[list[float]]:
    """The definitions of the docstring, one candidate at a time; ``edges`` join places in ``nodes``."""
    held = [set(words(texts[node])) for node in nodes]
    rows = []
    for place, node in enumerate(nodes):
        neighbours = [u for u, v in edges if v == place]
        in_lead = set(words(lead(texts[node])))
        total = sum(weight(word, texts) for word in in_lead)
        asked = sum(weight(word, texts) for word in in_lead & set(words(query)))
        rows.append(
            [
                coverage(query, held[place], texts),
                asked / total if total else 0.0,
                coverage(query, held[place].union(*(held[u] for u in neighbours)), texts),
            ]
        )
    return rows


def pack(
    lists: Sequence[Sequence[int]], edges: Sequence[set[tuple[int, int]]]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ptr = torch.tensor([0, *(len(nodes) for nodes in lists)]).cumsum(0)
    pairs = [(u + int(start), v + int(start)) for start, part in zip(ptr, edges, strict=False) for u, v in sorted(part)]
    flat = torch.tensor([node for nodes in lists for node in nodes], dtype=torch.int64)
    return flat, torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T, ptr


def test_against_the_definitions() -> None:
    lists = [[0, 1, 2, 3, 4], [2, 0, 5], [1, 0], [3]]
    path = {(0, 1), (1, 0), (1, 2), (2, 1), (1, 3), (3, 1)}
    edges = [path, {(0, 1)}, {(0, 1), (1, 0)}, set[tuple[int, int]]()]
    found = TextMatch(TEXTS).score(QUERIES, *pack(lists, edges))
    expected = [row for q, n, e in zip(QUERIES, lists, edges, strict=True) for row in by_the_book(TEXTS, q, n, e)]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert found.shape[1] == len(MATCH_FEATURES)


def test_random_graphs_against_the_definitions() -> None:
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(30)]
    texts = [" ".join(rng.choices(vocabulary, k=rng.randint(0, 12))) + rng.choice(["", ". end"]) for _ in range(25)]
    queries = [" ".join(rng.choices([*vocabulary, "nowhere"], k=rng.randint(1, 8))) for _ in range(12)]
    lists = [rng.sample(range(25), rng.randint(1, 12)) for _ in queries]
    edges = [{(rng.randrange(len(n)), rng.randrange(len(n))) for _ in range(2 * len(n))} for n in lists]
    edges = [{(u, v) for u, v in part if u != v} for part in edges]
    found = TextMatch(texts).score(queries, *pack(lists, edges))
    expected = [row for q, n, e in zip(queries, lists, edges, strict=True) for row in by_the_book(texts, q, n, e)]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert ((found >= 0) & (found <= 1)).all()


def test_a_batch_equals_its_queries_one_by_one() -> None:
    match = TextMatch(TEXTS)
    lists, edges = [[0, 1, 3], [2, 1]], [{(0, 1), (1, 0)}, {(1, 0)}]
    together = match.score(QUERIES[:2], *pack(lists, edges))
    alone = [match.score([QUERIES[i]], *pack([lists[i]], [edges[i]])) for i in range(2)]
    torch.testing.assert_close(together, torch.cat(alone))


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_a_corpus_without_words(texts: list[str]) -> None:
    nodes = list(range(len(texts)))
    found = TextMatch(texts).score(["what is this thing"], *pack([nodes], [set()]))
    assert found.shape == (len(texts), 3)
    assert not found.any()


def test_no_queries() -> None:
    assert TextMatch(TEXTS).score([], *pack([], [])).shape == (0, 3)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cities", "city"), ("classes", "class"), ("boxes", "box"), ("movies", "movie"), ("statuses", "status"),
        ("enrollment", "enrolled"), ("shipping", "Shipped"),
    ],
)  # fmt: skip
def test_forms_of_a_word_are_one(one: str, other: str) -> None:
    assert words(one) == words(other)


@pytest.mark.parametrize(
    ("compound", "expected"),
    [
        ("orderNumber", ["ordernumb", "order", "number"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("NationalIDNumber", ["nationalidnumb", "nation", "id", "number"]),
        ("PRICE", ["price"]),
        ("area51", ["area51", "area", "51"]),
        ("2nd", ["2nd"]),
    ],
)
def test_compounds_give_their_parts_too(compound: str, expected: list[str]) -> None:
    assert words(compound) == expected


def test_stems_in_many_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        assert set(map(tuple, pool.map(words, ["movies enrolled shippedDate"] * 400))) == {
            tuple(words("movies enrolled shippedDate"))
        }


def test_words_and_lead() -> None:
    assert words("The Café_owner's 2nd song, über-alles!") == ["café", "owner", "s", "2nd", "song", "über", "all"]
    assert lead("No end") == "No end"
    assert lead("A title\nand a text. More.") == "A title"
    assert lead("v1.5 notes: what is new") == "v1.5 notes"
    assert lead("") == ""
