import math
import random
import tracemalloc
from collections.abc import Sequence

import pytest
import torch

from graphrerank.features.text_match import MATCH_FEATURES, WORD_FEATURES, TextMatch
from graphrerank.text import lead, words

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
    """Compute the definitions of the docstring one candidate at a time. ``edges`` join positions in ``nodes``."""
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
    check_definitions(TEXTS, QUERIES, lists, edges)


def check_definitions(texts: list[str], queries: list[str], lists: list[list[int]], edges: list[set]) -> None:
    found = TextMatch(texts).score(queries, *pack(lists, edges))
    expected = [row for q, n, e in zip(queries, lists, edges, strict=True) for row in by_the_book(texts, q, n, e)]
    torch.testing.assert_close(found, torch.tensor(expected))
    assert found.shape[1] == len(MATCH_FEATURES)
    assert ((found >= 0) & (found <= 1)).all()


def test_random_graphs_against_the_definitions() -> None:
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(30)]
    texts = [" ".join(rng.choices(vocabulary, k=rng.randint(0, 12))) + rng.choice(["", ". end"]) for _ in range(25)]
    queries = [" ".join(rng.choices([*vocabulary, "nowhere"], k=rng.randint(1, 8))) for _ in range(12)]
    lists = [rng.sample(range(25), rng.randint(1, 12)) for _ in queries]
    edges = [{(rng.randrange(len(n)), rng.randrange(len(n))) for _ in range(2 * len(n))} for n in lists]
    check_definitions(texts, queries, lists, [{(u, v) for u, v in part if u != v} for part in edges])


def test_a_title_that_is_covered_counts_one_at_most() -> None:
    """The query has the words of the title in another order, so its rounded sum can exceed that of the title."""
    rng = random.Random(0)
    vocabulary = [f"w{i}" for i in range(60)]
    titles = [rng.sample(vocabulary, rng.randint(20, 50)) for _ in range(40)]
    queries = [" ".join(rng.sample(title, len(title))) for title in titles]
    match = TextMatch([" ".join(title) for title in titles])
    found = match.score(queries, *pack([[node] for node in range(40)], [set() for _ in titles]))[:, 1]
    torch.testing.assert_close(found, torch.ones(40))
    assert (found <= 1).all()


def test_single_words_against_the_definitions() -> None:
    query = "directed film of Tarkovsky nowhere Solaris Paris"
    found = TextMatch(TEXTS).score([query], *pack([[3, 0, 2]], [set()]), with_words=True)[:, len(MATCH_FEATURES) :]
    assert found.shape[1] == len(WORD_FEATURES)
    known = [word for word in dict.fromkeys(words(query)) if any(word in words(text) for text in TEXTS)]
    known.sort(key=lambda word: -weight(word, TEXTS))  # stable: of equals the first in the query first
    total = sum(weight(word, TEXTS) for word in set(words(query)))
    for row, node in zip(found.tolist(), (3, 0, 2), strict=True):
        held = words(TEXTS[node])
        expected = [weight(word, TEXTS) / total if word in held else 0.0 for word in known]
        assert row[: len(known)] == pytest.approx(expected)
        assert not any(row[len(known) :])
    assert (found > 0).sum(1).tolist() == [3, 4, 1]


def test_of_a_long_query_the_rarest_words_are_read() -> None:
    vocabulary = [f"x{chr(97 + i // 20)}{chr(97 + i % 20)}q" for i in range(40)]
    texts = [" ".join(vocabulary[i:]) for i in range(40)]  # the first in one text, the last in all
    queries = [" ".join(reversed(vocabulary)), f"{vocabulary[3]} {vocabulary[1]}"]
    found = TextMatch(texts).score(queries, *pack([[0, 30], [2]], [set(), set()]), with_words=True)
    one_by_one = found[:, len(MATCH_FEATURES) :]
    size = len(WORD_FEATURES)
    assert one_by_one[0].tolist() == sorted(one_by_one[0].tolist(), reverse=True)
    assert (one_by_one[0] > 0).all()
    assert not one_by_one[1].any()  # holds none of the 24 rarest
    assert (one_by_one[2] > 0).tolist() == [False, True, *[False] * (size - 2)]


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
    assert TextMatch(texts).score([], *pack([], [])).shape == (0, 3)  # nor queries


def test_each_edge_left_out_in_turn() -> None:
    match, nodes, ptr = TextMatch(TEXTS), torch.arange(6), torch.tensor([0, 6])
    pairs = [(0, 1), (0, 2), (1, 0), (1, 2), (1, 3), (3, 1), (4, 1), (5, 0)]
    edges = torch.tensor(sorted(pairs, key=lambda pair: pair[1])).T
    found = match.matched_words(QUERIES[:1], nodes, ptr).without_each(edges)
    for place, target in enumerate(edges[1].tolist()):
        others = edges[:, torch.arange(edges.shape[1]) != place]
        assert found[place] == match.score(QUERIES[:1], nodes, others, ptr)[target, 2]


def test_many_words_and_many_edges_in_bounded_memory() -> None:
    """A dense tensor of the words of all edges' sources would take 20 GB."""
    query = " ".join(f"w{number}" for number in range(25_000))
    texts = [f"w{number} w{number + 1}" for number in range(500)]
    edges = torch.stack([torch.arange(200_000) % 500, torch.arange(200_000) * 7 // 3 % 500])
    tracemalloc.start()
    found = TextMatch(texts).score([query], torch.arange(500), edges, torch.tensor([0, 500]))
    peak = tracemalloc.get_traced_memory()[1]  # of NumPy's arrays and Python's objects
    tracemalloc.stop()
    assert peak < 150e6
    assert (found[:, 2] > found[:, 0]).all()
