import itertools
import math
import random

import igraph
import pytest
import torch
from tokenizers import Tokenizer as Backend
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from graphrerank.text import TransformersTokenizer, WordTokenizer
from graphrerank_papers.ket.chunks import Chunks, TokenStream, build_chunk_graph, core_chunks, page_rank


def documents_of(chunks: Chunks) -> list[list[int]]:
    return [chunks.documents[chunks.indptr[i] : chunks.indptr[i + 1]].tolist() for i in range(len(chunks))]


@pytest.mark.parametrize("lengths", [[7, 0, 1, 30, 12, 0, 3], [], [0, 0]])
@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("num_splits", [0, 1, 3])
def test_against_naive_loop(lengths: list[int], join: bool, num_splits: int) -> None:
    count = itertools.count()
    texts = [" ".join(f"w{next(count)}" for _ in range(length)) for length in lengths]
    chunks = TokenStream(texts, WordTokenizer()).cut(10, join=join, num_splits=num_splits)
    where = {word: number for number, text in enumerate(texts) for word in text.split()}
    regions = [[word for text in texts for word in text.split()]] if join else [text.split() for text in texts]
    parents = [region[i : i + 10] for region in regions for i in range(0, len(region), 10)]
    pieces = [(number, words) for number, words in enumerate(parents)]
    for _ in range(num_splits):
        pieces = [
            (number, half)
            for number, words in pieces
            for half in (words[: (len(words) + 1) // 2], words[(len(words) + 1) // 2 :])
            if half
        ]
    assert [text.split() for text in chunks.texts] == [words for _, words in pieces]
    assert chunks.parent.tolist() == [number for number, _ in pieces]
    assert documents_of(chunks) == [sorted({where[word] for word in words}) for _, words in pieces]


def test_a_character_of_several_tokens_stays_whole(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    backend = Backend(BPE({character: number for number, character in enumerate(ByteLevel.alphabet())}, []))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(folder)
    chunks = TokenStream(["aéüz", "ö"], TransformersTokenizer(folder)).cut(1)
    assert "".join(text for text in chunks.texts).replace("\n", "") == "aéüzö"
    assert documents_of(chunks) == [[0], [0], [0], [0], [1]]


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


@pytest.mark.parametrize("num_neighbours", [2, 10])
@pytest.mark.parametrize(("num_chunks", "duplicates"), [(1, 0), (2, 0), (12, 0), (60, 10)])
def test_neighbours_against_naive_loop(
    num_chunks: int, duplicates: int, num_neighbours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, vectors = corpus(num_chunks, seed=num_chunks, duplicates=duplicates)
    lexical, semantic = naive_neighbours(words, vectors, num_neighbours)
    pairs = {tuple(sorted((i, j))) for side in (lexical, semantic) for i, row in enumerate(side) for j in row}
    for block_scores in (1 << 23, 180):
        monkeypatch.setattr("graphrerank_papers.ket.chunks.BLOCK_SCORES", block_scores)
        graph = build_chunk_graph(words, vectors, num_neighbours=num_neighbours)
        assert (listed(graph.lexical), listed(graph.semantic)) == (lexical, semantic)
        assert [tuple(edge) for edge in graph.edges.tolist()] == sorted(pairs)


def test_no_chunk_and_no_keyword() -> None:
    empty = build_chunk_graph([], torch.zeros(0, 3))
    assert empty.edges.shape == (0, 2)
    graph = build_chunk_graph([[], [], []], torch.eye(3))
    assert graph.lexical.tolist() == [[-1]] * 3
    assert graph.semantic.tolist() == [[1], [0], [0]]  # all cosines 0: by number


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
