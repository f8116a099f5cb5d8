"""Time Graph Cohesive Smoothing: our batched operator against networkx.

``python benchmarks/gcs_networkx.py`` smooths 32 candidate graphs in one call. The reference is GraphER's Algorithm 1 in
Python over one ``networkx`` graph per query. The script checks that the scores agree within 1e-5 and prints
milliseconds per query, on one thread. Building the graphs is not timed on either side.
"""

import argparse

import networkx as nx
import torch
from interleaved import median_seconds

from graphrerank.operators.gcs import TOLERANCE, graph_cohesive_smoothing, num_smoothing_steps

NUM_GRAPHS, NUM_CANDIDATES = 32, 100
RESTART_PROB = 0.5


def algorithm_1(graph: nx.Graph, seeds: dict[int, float]) -> dict[int, float]:
    """Iterate ``p = c s + (1 - c) W p`` until the residual is small, and take the maximum with ``s``."""
    total = dict(graph.degree(weight="weight"))
    scores, residual = seeds, TOLERANCE
    while residual >= TOLERANCE:
        following = {}
        for node, seed in seeds.items():
            near = sum(edge["weight"] * scores[other] for other, edge in graph[node].items())
            following[node] = RESTART_PROB * seed + ((1 - RESTART_PROB) * near / total[node] if near else 0.0)
        residual = sum(abs(following[node] - scores[node]) for node in seeds)
        scores = following
    return {node: max(score, seeds[node]) for node, score in scores.items()}


def main() -> None:
    """Check both implementations, time them, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20, help="number of timed repetitions (default: %(default)s)")
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    num_steps = num_smoothing_steps(RESTART_PROB)
    print("| directed edges per node | networkx, ms/query | ours, batched | ratio |")
    print("| --- | --- | --- | --- |")
    for edges_per_node in (1, 6):
        graphs = [
            nx.gnm_random_graph(NUM_CANDIDATES, edges_per_node * NUM_CANDIDATES // 2, seed=g) for g in range(NUM_GRAPHS)
        ]
        generator = torch.Generator().manual_seed(0)
        scores = torch.rand(NUM_GRAPHS, NUM_CANDIDATES, generator=generator)
        pairs, weights = [], []
        for number, graph in enumerate(graphs):
            for (a, b), weight in zip(graph.edges, torch.rand(graph.size(), generator=generator).tolist(), strict=True):
                graph[a][b]["weight"] = weight
                pairs += [(a + number * NUM_CANDIDATES, b + number * NUM_CANDIDATES)]
                weights.append(weight)
        one_way, weight = torch.tensor(pairs).T, torch.tensor(weights)
        packed = (scores.flatten(), torch.cat([one_way, one_way.flip(0)], dim=1), torch.cat([weight, weight]))
        seeds = [dict(enumerate(row)) for row in scores.tolist()]

        expected = [list(algorithm_1(graph, seed).values()) for graph, seed in zip(graphs, seeds, strict=True)]
        found = graph_cohesive_smoothing(*packed, RESTART_PROB, num_steps).view(NUM_GRAPHS, NUM_CANDIDATES)
        torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)

        seconds = median_seconds(
            {
                "networkx": lambda g=graphs, s=seeds: [algorithm_1(*one) for one in zip(g, s, strict=True)],
                "ours": lambda p=packed: graph_cohesive_smoothing(*p, RESTART_PROB, num_steps),
            },
            repeats=repeats,
        )
        per_query = " | ".join(f"{1000 * s / NUM_GRAPHS:.4f}" for s in seconds.values())
        print(f"| {edges_per_node} | {per_query} | {seconds['networkx'] / seconds['ours']:.0f}x |")


if __name__ == "__main__":
    main()
