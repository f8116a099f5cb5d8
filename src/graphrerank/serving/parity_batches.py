"""What the parity gate scores: named hard cases, then random ragged batches, the same ones each time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from graphrerank.graphs import CandidateGraphs
from graphrerank.models.checkpoint import manifest_entry, reads_pairs, reads_vectors, scores_queries

HARD_CASES = {  # sizes of the graphs, and edges: no edge, one node, self-loops and parallel edges, large graphs
    "nodes=1, edges=0": ([1], 0),
    "nodes=1, edges=1": ([1], 1),
    "nodes=1, edges=2000": ([1], 2000),
    "nodes=200, edges=0": ([200], 0),
    "nodes=200, edges=1": ([200], 1),
    "nodes=200, edges=2000": ([200], 2000),
    "nodes=1000, edges=2000": ([1000], 2000),
    "packed batch": ([1, 7, 200, 0, 3], 2000),
}
MOST_GRAPHS = 4  # of a random batch
MOST_NODES = 40  # of its graphs
MOST_EDGES = 3  # for each node


class ModelInputs(Protocol):
    """What a model scores in one call."""

    def model_inputs(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``forward``."""

    def order(self, scores: Tensor) -> Tensor:
        """Rank by score: ``[B, K]`` places, padded with -1."""


@dataclass(frozen=True)
class QueryFeatures:
    """What the complexity adapter scores in one call.

    Attributes:
        x: ``[n, F]`` raw features of queries.
    """

    x: Tensor

    def model_inputs(self) -> tuple[Tensor, ...]:
        """Return the arguments of ``forward``."""
        return (self.x,)

    def order(self, scores: Tensor) -> Tensor:
        """Rank the queries by score, ``[1, n]``."""
        return torch.argsort(scores, descending=True, stable=True).unsqueeze(0)


def parity_batches(manifest: Mapping[str, Any], num_batches: int) -> Iterator[tuple[str, ModelInputs]]:
    """Make named batches; the hard cases come first.

    Args:
        manifest: Of the model: what it reads.
        num_batches: How many, also where that leaves out hard cases.
    """
    generator = torch.Generator().manual_seed(0)
    if scores_queries(manifest):
        yield from islice(_query_batches(manifest, generator), num_batches)
    else:
        yield from islice(_graph_batches(manifest, generator), num_batches)


def example_batch(manifest: Mapping[str, Any]) -> ModelInputs:
    """Make a batch to trace a model with: no size that may change is 0 or 1, or that of another."""
    generator = torch.Generator().manual_seed(0)
    if scores_queries(manifest):
        num_features = manifest_entry(manifest, "model", "arguments", "num_features")
        return QueryFeatures(torch.randn(7, num_features, generator=generator))
    return random_graphs(manifest, [6, 9, 4], 41, generator)


def _graph_batches(manifest: Mapping[str, Any], generator: torch.Generator) -> Iterator[tuple[str, CandidateGraphs]]:
    for name, (sizes, num_edges) in HARD_CASES.items():
        yield name, random_graphs(manifest, sizes, num_edges, generator)
    for number in count(1):
        num_graphs = int(torch.randint(MOST_GRAPHS, (), generator=generator))
        first = 1000 if number % 50 == 0 else int(torch.randint(1, MOST_NODES, (), generator=generator))
        sizes = [first, *torch.randint(MOST_NODES, (num_graphs,), generator=generator).tolist()]
        most = 0 if number % 10 == 1 else MOST_EDGES * sum(sizes)
        num_edges = int(torch.randint(most + 1, (), generator=generator))
        yield f"random batch {number}", random_graphs(manifest, sizes, num_edges, generator)


def _query_batches(manifest: Mapping[str, Any], generator: torch.Generator) -> Iterator[tuple[str, QueryFeatures]]:
    num_features = manifest_entry(manifest, "model", "arguments", "num_features")
    far = torch.tensor([[0.0], [1e6], [-1e6]]).expand(3, num_features)
    yield "far out", QueryFeatures(far)
    for number in count(1):
        rows = 300 if number % 50 == 1 else int(torch.randint(1, 20, (), generator=generator))
        yield f"random batch {number}", QueryFeatures(5 * torch.randn(rows, num_features, generator=generator))


def random_graphs(
    manifest: Mapping[str, Any], sizes: list[int], num_edges: int, generator: torch.Generator
) -> CandidateGraphs:
    """Make a packed batch of graphs with edges in any order, among them self-loops and parallel ones.

    Scores are rounded, so that there are ties.

    Args:
        manifest: Of the model: what it reads.
        sizes: Nodes of each graph, at least one in all.
        num_edges: Edges of all graphs together.
        generator: Of random numbers.
    """
    num_nodes = sum(sizes)
    num_scores = len(manifest_entry(manifest, "retriever", "feature_names"))
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    target = torch.randint(num_nodes, (num_edges,), generator=generator)
    graph = torch.searchsorted(ptr, target, right=True) - 1
    share = torch.rand(num_edges, generator=generator)  # where in the target's own graph the source lies
    source = ptr[graph] + (share * (ptr[graph + 1] - ptr[graph])).long()
    vectors = reads_vectors(manifest)
    dim = manifest_entry(manifest, "encoder", "dim") if vectors else 0
    pair_vectors = degree = None
    if reads_pairs(manifest):
        pair_vectors = torch.randn(num_nodes, manifest_entry(manifest, "pair_encoder", "dim"), generator=generator)
        degree = torch.bincount(target, minlength=num_nodes) + torch.randint(9, (num_nodes,), generator=generator)
    return CandidateGraphs(
        x=(torch.randn(num_nodes, num_scores, generator=generator) * 20).round() / 20,
        edge_index=torch.stack([source, target]),
        edge_attr=torch.rand(num_edges, generator=generator) + 0.1,
        ptr=ptr,
        query_vectors=_unit_vectors(len(sizes), dim, generator) if vectors else None,
        node_vectors=_unit_vectors(num_nodes, dim, generator) if vectors else None,
        pair_vectors=pair_vectors,
        degree=degree,
    )


def _unit_vectors(rows: int, dim: int, generator: torch.Generator) -> Tensor:
    return nn.functional.normalize(torch.randn(rows, dim, generator=generator), dim=1)
