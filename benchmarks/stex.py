"""Time STeX on a large corpus graph: our batched expansion against Algorithm 3 in Python.

``python benchmarks/stex.py`` expands 32 rankings of 100 nodes in one call. The reference is a transcription of
FastInsight's Algorithm 3 that expands one query after the other, once line by line, and once tuned: A(n) is computed
from the node's neighbours instead of testing every retrieved node. The script checks that the expansions are equal and
prints milliseconds per query, on one thread. Building the graphs is not timed on any side.
"""

import argparse

import numpy as np
import torch
from command_line import add_large_graph, add_numbers
from interleaved import median_seconds

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.stex import semantic_topological_expansion


class Algorithm3:
    """The paper's loop over the neighbours of one ranking. ``literal`` transcribes its line 4 exactly."""

    def __init__(self, graph: CorpusGraph, seeds: Ranking, *, literal: bool) -> None:
        assert graph.embedding is not None
        self.vectors, self.literal = graph.embedding.numpy(), literal
        self.neighbours: dict[int, set[int]] = {}
        for nodes in (seeds.nodes.flatten().tolist(), None):
            for node in nodes or [near for found in list(self.neighbours.values()) for near in found]:
                if node not in self.neighbours:
                    self.neighbours[node] = set(graph.indices[graph.indptr[node] : graph.indptr[node + 1]].tolist())

    def expand(self, query: np.ndarray, retrieved: list[int], *, top_k: int, structure_weight: float) -> list[int]:
        """Return the best new nodes of one query."""
        rank = {node: place for place, node in enumerate(retrieved, start=1)}
        reached = {near for node in retrieved for near in self.neighbours[node]} - rank.keys()
        most_ranks = len(retrieved)
        scores = {}
        for node in reached:
            near = self.neighbours[node]
            seeds = {other for other in retrieved if other in near} if self.literal else near & rank.keys()
            structure = 0.0
            if most_ranks > 1:
                structure = 1 - (min(rank[seed] for seed in seeds) - 1) / (most_ranks - 1)
            most_seeds = min(len(near), most_ranks)
            if most_seeds > 1:
                structure += (len(seeds) - 1) / (most_seeds - 1)
            scores[node] = float(self.vectors[node] @ query) + structure_weight * structure
        return sorted(scores, key=lambda node: (-scores[node], node))[:top_k]


def peak_bytes(graph: CorpusGraph, seeds: Ranking, queries: torch.Tensor, *, top_k: int) -> int:
    """Return the peak memory of our call without its input, from the profiler's allocations."""
    with torch.profiler.profile(profile_memory=True) as profiler:
        semantic_topological_expansion(graph, seeds, queries, top_k=top_k)
    changes = [event.nbytes() for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    return int(np.cumsum(changes).max(initial=0))


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_large_graph(parser, num_seeds=100, seeds="retrieved nodes")
    add_numbers(
        parser,
        dim=(384, "dimension of the vectors"),
        top_k=(100, "number of nodes after the expansion"),
        repeats=(5, "number of timed repetitions"),
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, args.nodes, (args.edges, 2), generator=generator)
    edges = edges[edges[:, 0] != edges[:, 1]]
    graph = CorpusGraph.from_edges([str(i) for i in range(args.nodes)], [""] * args.nodes, edges)
    graph = graph.with_embedding(torch.randn(args.nodes, args.dim, generator=generator) / args.dim**0.5)
    queries = torch.randn(args.queries, args.dim, generator=generator) / args.dim**0.5
    rows = [torch.randperm(args.nodes, generator=generator)[: args.seeds] for _ in range(args.queries)]
    seeds = Ranking(torch.stack(rows), torch.linspace(1, 0, args.seeds).repeat(args.queries, 1))

    literal, tuned = (Algorithm3(graph, seeds, literal=literal) for literal in (True, False))

    def one_by_one(peer: Algorithm3) -> list[list[int]]:
        pairs = zip(queries.numpy(), seeds.nodes.tolist(), strict=True)
        return [peer.expand(query, nodes, top_k=args.top_k, structure_weight=1.0) for query, nodes in pairs]

    assert one_by_one(literal) == one_by_one(tuned)
    expected = torch.tensor(one_by_one(literal))
    found = semantic_topological_expansion(graph, seeds, queries, top_k=args.top_k)
    differing = int((found.nodes != expected).sum())
    assert differing <= found.nodes.numel() // 1000, f"{differing} nodes differ"  # Scores may be equal up to rounding.

    seconds = median_seconds(
        {
            "line by line": lambda: one_by_one(literal),
            "tuned": lambda: one_by_one(tuned),
            "ours": lambda: semantic_topological_expansion(graph, seeds, queries, top_k=args.top_k),
        },
        repeats=args.repeats,
    )
    peak = peak_bytes(graph, seeds, queries, top_k=args.top_k)
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges // 2:,} edges, {args.queries} queries, {args.seeds} seeds each")
    print("| Algorithm 3 line by line, ms/query | tuned | ours, batched | ratio | ratio to tuned | our peak, MiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    per_query = " | ".join(f"{1000 * s / args.queries:.3f}" for s in seconds.values())
    ratios = " | ".join(f"{seconds[name] / seconds['ours']:.1f}x" for name in ("line by line", "tuned"))
    print(f"| {per_query} | {ratios} | {peak / 2**20:.0f} |")


if __name__ == "__main__":
    main()
