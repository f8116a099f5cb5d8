"""Time personalized PageRank on a large corpus graph: our batched iteration against igraph.

``python benchmarks/corpus_ppr.py`` computes 32 queries with 10 seeds each in one call. igraph's
``personalized_pagerank`` (PRPACK, exact) computes a few of the queries, one after the other. The script checks that the
top 100 are the same and prints seconds per query, on one thread. Building igraph's graph and our transition matrix is
not timed.
"""

import argparse
import resource
import time

import igraph
import torch
from command_line import add_large_graph, add_numbers

from graphrerank.core import Ranking
from graphrerank.corpus import CorpusGraph
from graphrerank.operators.ppr import CorpusPPR


def large_graph(num_nodes: int, num_edges: int, generator: torch.Generator) -> tuple[CorpusGraph, torch.Tensor]:
    """Draw a corpus graph with skewed degrees: one end of each edge is the square of a uniform number."""
    ends = torch.rand(num_edges, 2, generator=generator)
    edges = (torch.stack([ends[:, 0], ends[:, 1] ** 2], dim=1) * num_nodes).long().clamp(max=num_nodes - 1)
    edges = torch.unique(edges[edges[:, 0] != edges[:, 1]].sort(dim=1).values, dim=0)
    return CorpusGraph.from_edges([str(i) for i in range(num_nodes)], [""] * num_nodes, edges), edges


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_large_graph(parser, num_seeds=10, seeds="seed nodes")
    add_numbers(
        parser,
        top_k=(100, "number of top nodes to compare"),
        igraph_queries=(4, "number of queries that igraph computes for each restart probability"),
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    graph, edges = large_graph(args.nodes, args.edges, generator)
    rows = [torch.randperm(args.nodes, generator=generator)[: args.seeds] for _ in range(args.queries)]
    seeds = Ranking(torch.stack(rows), torch.linspace(1, 0.5, args.seeds).repeat(args.queries, 1))

    results = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for restart_prob in (0.5, 0.15):
        operator = CorpusPPR(graph, restart_prob=restart_prob)
        begin = time.perf_counter()
        found = operator.expand(seeds, top_k=args.top_k)
        results[restart_prob] = found, (time.perf_counter() - begin) / args.queries
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, before igraph allocates memory

    peer = igraph.Graph(n=args.nodes, edges=edges.numpy())
    print(f"{graph.num_nodes:,} nodes, {graph.num_edges // 2:,} edges, {args.queries} queries, {args.seeds} seeds each")
    print("| restart | igraph, s/query | ours, batched | ratio | overlap of the top | peak of the process, GiB |")
    print("| --- | --- | --- | --- | --- | --- |")
    for restart_prob, (found, ours) in results.items():
        seconds, shared = 0.0, 0
        for query in range(args.igraph_queries):
            reset = torch.zeros(args.nodes, dtype=torch.float64)
            reset[seeds.nodes[query]] = seeds.scores[query].double()
            listed = reset.tolist()
            begin = time.perf_counter()
            scores = peer.personalized_pagerank(damping=1 - restart_prob, reset=listed)
            seconds += time.perf_counter() - begin
            top = torch.tensor(scores, dtype=torch.float64).topk(args.top_k).indices
            shared += int(torch.isin(found.nodes[query], top).sum())
        theirs, overlap = seconds / args.igraph_queries, shared / (args.igraph_queries * args.top_k)
        assert overlap >= 0.99, f"overlap {overlap}"
        peak = f"{after / 2**20:.2f} ({before / 2**20:.2f} before the first call)"
        print(f"| {restart_prob} | {theirs:.2f} | {ours:.2f} | {theirs / ours:.1f}x | {overlap:.3f} | {peak} |")


if __name__ == "__main__":
    main()
