"""Time KET-RAG's graph of chunks: sparse and dense products against a loop over pairs.

``python benchmarks/ket_knn.py`` draws chunks of words by Zipf's law with random vectors; some chunks occur twice. The
reference is Algorithm 3, lines 3 to 6, with Python sets and a NumPy product for each pair. The script checks that the
edges are the same and prints both times, on one thread.
"""

import argparse
import time

import numpy as np
import torch

from graphrerank_papers.ket.chunks import build_chunk_graph


def corpus(num_chunks: int, dim: int) -> tuple[list[list[str]], torch.Tensor]:
    """Draw the keywords and vectors of each chunk. The last tenth of the chunks repeats the first."""
    rng = np.random.default_rng(0)
    share = 1 / np.arange(20, 30_020)
    drawn = rng.choice(30_000, size=(num_chunks, 70), p=share / share.sum())
    words = [list(dict.fromkeys(f"w{word}" for word in row)) for row in drawn]
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.standard_normal((num_chunks, dim))).float(), dim=1)
    twins = num_chunks // 10
    words[-twins:], vectors[-twins:] = words[:twins], vectors[:twins].clone()
    return words, vectors


def pair_by_pair(words: list[list[str]], vectors: torch.Tensor, num_neighbours: int) -> set[tuple[int, int]]:
    """Compute the edges with a transcription of Algorithm 3, lines 3 to 6."""
    sets, rows = [set(row) for row in words], list(vectors.double().numpy())
    half, chunks = num_neighbours // 2, range(len(words))
    edges = set()
    for i in chunks:
        shared = {j: len(sets[i] & sets[j]) for j in chunks if j != i}
        lexical = sorted((j for j in shared if shared[j]), key=lambda j: (-shared[j], j))[:half]
        cosine = {j: round(float(rows[i] @ rows[j]), 10) for j in chunks if j != i and j not in lexical}
        semantic = sorted(cosine, key=lambda j: (-cosine[j], j))[:half]
        edges |= {(min(i, j), max(i, j)) for j in lexical + semantic}
    return edges


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chunks", type=int, default=2000, help="number of chunks (default: %(default)s)")
    parser.add_argument("--dim", type=int, default=384, help="dimension of the vectors (default: %(default)s)")
    parser.add_argument(
        "--neighbours",
        type=int,
        nargs="+",
        default=[2, 10],
        help="numbers of neighbours per chunk (default: %(default)s)",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    words, vectors = corpus(args.chunks, args.dim)
    print(f"{args.chunks:,} chunks of {np.mean([len(row) for row in words]):.0f} keywords, {args.dim} dimensions")
    print("| K | pair by pair, s | ours, s | ratio | edges |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for num_neighbours in args.neighbours:
        begin = time.perf_counter()
        graph = build_chunk_graph(words, vectors, num_neighbours=num_neighbours)
        ours = time.perf_counter() - begin
        begin = time.perf_counter()
        edges = pair_by_pair(words, vectors, num_neighbours)
        theirs = time.perf_counter() - begin
        assert {(i, j) for i, j in graph.edges.tolist()} == edges
        print(f"| {num_neighbours} | {theirs:.1f} | {ours:.2f} | {theirs / ours:.0f}x | {len(edges):,}, the same |")


if __name__ == "__main__":
    main()
