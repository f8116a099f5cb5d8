import math
import random

import igraph
import pytest
import torch
from torch import Tensor

from graphrerank_papers.ket.chunk_graph import build_chunk_graph, core_chunks, keyword_incidence, page_rank


def corpus(num_chunks: int, *, seed: int, duplicates: int = 0) -> tuple[list[list[str]], Tensor]:
    rng = random.Random(seed)
    words = [rng.sample([f"w{i}" for i in range(30)], rng.randrange(0, 8)) for _ in range(num_chunks)]
    vectors = torch.randn(num_chunks, 5, generator=torch.Generator().manual_seed(seed))
    for chunk in range(num_chunks - duplicates, num_chunks):
        words[chunk], vectors[chunk] = words[chunk - duplicates], vectors[chunk - duplicates]
    return words, vectors


def naive_neighbours(words: list[list[str]], vectors: Tensor, k: int) -> tuple[list[list[int]], list[list[int]]]:
    """Algorithm 3, lines 3 to 6, pair by pair."""
    rows = vectors.double().tolist()
    lexical, semantic = [], []
    for i in range(len(words)):
        shared = {j: len(set(words[i]) & set(words[j])) for j in range(len(words)) if j != i}
        first = sorted((j for j in shared if shared[j]), key=lambda j: (-shared[j], j))[: k // 2]
        cosine = {}
        for j in range(len(words)):
            if j != i and j not in first:
                dot = sum(a * b for a, b in zip(rows[i], rows[j], strict=True))
                cosine[j] = round(dot / (math.hypot(*rows[i]) * math.hypot(*rows[j])), 10)
        lexical.append(first)
        semantic.append(sorted(cosine, key=lambda j: (-cosine[j], j))[: k // 2])
    return lexical, semantic


def listed(neighbours: Tensor) -> list[list[int]]:
    return [[node for node in row if node >= 0] for row in neighbours.tolist()]


@pytest.mark.parametrize("num_neighbours", [2, 4, 10])
@pytest.mark.parametrize(("num_chunks", "duplicates"), [(1, 0), (2, 0), (12, 0), (60, 10)])
def test_against_naive_loop(num_chunks: int, duplicates: int, num_neighbours: int) -> None:
    words, vectors = corpus(num_chunks, seed=num_chunks, duplicates=duplicates)
    graph = build_chunk_graph(words, vectors, num_neighbours=num_neighbours)
    lexical, semantic = naive_neighbours(words, vectors, num_neighbours)
    assert (listed(graph.lexical), listed(graph.semantic)) == (lexical, semantic)
    pairs = {tuple(sorted((i, j))) for side in (lexical, semantic) for i, row in enumerate(side) for j in row}
    assert [tuple(edge) for edge in graph.edges.tolist()] == sorted(pairs)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    words, vectors = corpus(60, seed=3, duplicates=10)
    whole = build_chunk_graph(words, vectors, num_neighbours=4)
    monkeypatch.setattr("graphrerank_papers.ket.chunk_graph.BLOCK_SCORES", 180)
    blocks = build_chunk_graph(words, vectors, num_neighbours=4)
    assert torch.equal(whole.lexical, blocks.lexical)
    assert torch.equal(whole.semantic, blocks.semantic)


def test_no_chunk_and_no_keyword() -> None:
    empty = build_chunk_graph([], torch.zeros(0, 3))
    assert empty.edges.shape == (0, 2)
    graph = build_chunk_graph([[], [], []], torch.eye(3))
    assert graph.lexical.tolist() == [[-1]] * 3
    assert graph.semantic.tolist() == [[1], [0], [0]]  # all cosines 0: by number
    assert keyword_incidence([[], ["a"], ["b", "a"]]).toarray().tolist() == [[0, 0], [1, 0], [1, 1]]


def test_page_rank_against_igraph() -> None:
    words, vectors = corpus(60, seed=5)
    edges = build_chunk_graph(words, vectors, num_neighbours=2).edges
    for restart_prob in (0.15, 0.5):
        ours = page_rank(edges, 62, restart_prob=restart_prob)  # the last two nodes have no edge
        theirs = igraph.Graph(n=62, edges=edges.tolist()).pagerank(damping=1 - restart_prob)
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), atol=1e-9, rtol=0)
    assert page_rank(edges[:0], 4).tolist() == [0.25] * 4
    assert page_rank(edges[:0], 0).tolist() == []


def test_core_chunks() -> None:
    words, vectors = corpus(30, seed=7)
    graph = build_chunk_graph(words, vectors)
    scores = page_rank(graph.edges, 30)
    best = sorted(range(30), key=lambda chunk: (-round(float(scores[chunk]), 10), chunk))
    assert core_chunks(graph, share=0.1).tolist() == sorted(best[:3])  # 0.1 * 30 is 3.0000000000000004
    assert core_chunks(graph, share=0.71).tolist() == sorted(best[:22])
    assert core_chunks(graph, share=0).tolist() == []
    assert core_chunks(graph, share=1).tolist() == list(range(30))
    drawn = core_chunks(graph, share=0.5, selection="random", seed=1)
    assert len(set(drawn.tolist())) == 15
    assert torch.equal(drawn, core_chunks(graph, share=0.5, selection="random", seed=1))
    assert not torch.equal(drawn, core_chunks(graph, share=0.5, selection="random", seed=2))


def test_arguments_out_of_range() -> None:
    words, vectors = corpus(4, seed=0)
    with pytest.raises(ValueError, match=r"`vectors` must be finite and \[4, d\], got \[3, 5\]"):
        build_chunk_graph(words, vectors[:3])
    with pytest.raises(ValueError, match=r"`restart_prob` must lie in \(0, 1\], got 0"):
        page_rank(build_chunk_graph(words, vectors).edges, 4, restart_prob=0)
