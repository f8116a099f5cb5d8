"""Time hierarchical community detection: our Leiden against networkx's Louvain.

``python benchmarks/leiden.py --data DIR/kevin_scott_podcast --cache DIR`` finds communities of the podcast's entity
graph at every level. networkx's Leiden only dispatches to other packages, so its Louvain runs on the graph and again
within each community of more than ``--max-community`` entities. The script prints the times, measured in turn on one
thread, and the modularity of both coarsest levels.
"""

import argparse
from pathlib import Path

import networkx as nx
import torch
from interleaved import median_seconds
from retag_tables import Podcast

from graphrerank_papers.retag.entity_graph import hierarchical_leiden
from graphrerank_papers.retag.index import ReTAGSettings


def hierarchical_louvain(graph: nx.Graph, max_community: int) -> list[set[int]]:
    """Find communities with networkx, divide large ones again, and return those of the coarsest level."""
    coarsest = nx.community.louvain_communities(graph, seed=0)
    waiting = [nodes for nodes in coarsest if len(nodes) > max_community]
    while waiting:
        nodes = waiting.pop()
        parts = nx.community.louvain_communities(graph.subgraph(nodes), seed=0)
        if len(parts) > 1:
            waiting += [part for part in parts if len(part) > max_community]
    return coarsest


def main() -> None:
    """Time both implementations and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with corpus.jsonl")
    parser.add_argument("--cache", type=Path, required=True, help="folder of the cached knowledge")
    parser.add_argument(
        "--max-community", type=int, default=10, help="largest community that is not divided (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=5, help="number of timed repetitions (default: %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = ReTAGSettings(max_community=args.max_community, min_component=1)
    found = Podcast(args.data, args.cache).entity_graph()
    graph = nx.Graph()
    graph.add_weighted_edges_from(
        (*pair, weight) for pair, weight in zip(found.edges.tolist(), found.weight.tolist(), strict=True)
    )

    def ours() -> list[set[int]]:
        made = hierarchical_leiden(found.edges, found.weight, settings)
        return [set(nodes) for nodes, level in zip(made.members, made.level, strict=True) if level == 0]

    def theirs() -> list[set[int]]:
        return hierarchical_louvain(graph, args.max_community)

    seconds = median_seconds({"ours": ours, "theirs": theirs}, repeats=args.repeats)
    print(f"{graph.number_of_nodes():,} entities, {graph.number_of_edges():,} edges")
    print("| | seconds | modularity |\n| --- | --: | --: |")
    for name, label, run in (("theirs", "networkx, Louvain within Louvain", theirs), ("ours", "Leiden", ours)):
        print(f"| {label} | {seconds[name]:.2f} | {nx.community.modularity(graph, run()):.4f} |")
    print(f"ratio {seconds['theirs'] / seconds['ours']:.1f}x")


if __name__ == "__main__":
    main()
