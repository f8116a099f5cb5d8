"""What a corpus's edges look like before anything is asked: how many of each type, and whether they hang together."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from graphrerank.graphs import CorpusGraph
from graphrerank.graphs.edge_types import EDGE_TYPES


@dataclass(frozen=True)
class TypeDensity:
    """The edges of one type in a whole corpus."""

    edges: str  # one of `EDGE_TYPES`
    pairs: int  # that they join; by shared entities, once for each
    mean_neighbours: float  # of a passage
    share_joined: float  # share of the passages that have one


@dataclass(frozen=True)
class GraphShape:
    """A corpus graph."""

    num_passages: int
    types: tuple[TypeDensity, ...]  # those that some edge has
    share_isolated: float  # share of the passages without any edge
    num_components: int  # connected components of two passages or more
    largest_component: float  # share of the passages in the largest one; 0 without edges

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def graph_shape(graph: CorpusGraph) -> GraphShape:
    """Describe a corpus's edges, those by shared entities too.

    Example:
        >>> path = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1], [1, 2]]))
        >>> shape = graph_shape(path)
        >>> shape.types, shape.share_isolated, shape.num_components, shape.largest_component
        ((TypeDensity(edges='other', pairs=2, mean_neighbours=1.0, share_joined=0.75),), 0.25, 1, 0.75)
    """
    graph = graph.to("cpu")
    sizes = _component_sizes(graph)
    return GraphShape(
        num_passages=graph.num_nodes,
        types=tuple(_density(graph.with_types([number]), EDGE_TYPES[number]) for number in graph.edge_types()),
        share_isolated=float((graph.num_neighbours == 0).double().mean()),
        num_components=int((sizes > 1).sum()),
        largest_component=float(sizes.max()) / graph.num_nodes if graph.edge_types() else 0.0,
    )


def _density(graph: CorpusGraph, name: str) -> TypeDensity:
    count = graph.num_neighbours.double()
    return TypeDensity(name, int(count.sum()) // 2, float(count.mean()), float((count > 0).double().mean()))


def _component_sizes(graph: CorpusGraph) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Count the passages of each connected component; entities join the passages that share them."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    num_nodes = size = graph.num_nodes
    edges, _, _ = graph.typed_edges()
    pairs = [edges]
    if (entities := graph.entities) is not None:
        passage = torch.repeat_interleave(torch.arange(num_nodes), entities.indptr.diff())
        pairs.append(torch.stack([passage, num_nodes + entities.indices], dim=1))
        size += entities.num_entities
    source, target = torch.cat(pairs).T.numpy()
    _, labels = connected_components(coo_array((np.ones(len(source)), (source, target)), shape=(size, size)))
    return np.bincount(labels[:num_nodes]).astype(np.int64)
