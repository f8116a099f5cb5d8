"""Hierarchical communities by the Leiden algorithm."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor


@dataclass(frozen=True)
class Hierarchy:
    """Nested communities, ordered by level, then by their smallest member."""

    level: Sequence[int]  # level of each; 0 is the coarsest
    parent: Sequence[int]  # the community of the level above that contains it; -1 at level 0
    members: Sequence[Sequence[int]]  # nodes of each, ascending

    def __len__(self) -> int:
        return len(self.members)

    @property
    def by_level(self) -> list[dict[int, int]]:
        """The community of each node at each level; nodes of an unsplit community have none at finer levels."""
        levels: list[dict[int, int]] = [{} for _ in range(max(self.level, default=-1) + 1)]
        for community, (level, nodes) in enumerate(zip(self.level, self.members, strict=True)):
            levels[level].update(dict.fromkeys(nodes, community))
        return levels

    @property
    def children(self) -> list[list[int]]:
        """The communities into which each was split, ascending."""
        rows: list[list[int]] = [[] for _ in self.members]
        for child, parent in enumerate(self.parent):
            if parent >= 0:
                rows[parent].append(child)
        return rows


def hierarchical_leiden(
    edges: Tensor,
    weight: Tensor,
    *,
    resolution: float = 1.0,
    max_community: int = 10,
    min_component: int = 1,
    seed: int = 0,
) -> Hierarchy:
    """Find communities, and split those of ``max_community`` nodes or more recursively, if Leiden can.

    Source: "From Louvain to Leiden", 2019, as used by GraphRAG ("From Local to Global", 2024, section 3.1.3), in the
    implementation of Microsoft's ``graspologic-native``.

    ``edges`` are ``[m, 2]`` int64, undirected, unique pairs, with a positive ``weight`` ``[m]``. A larger
    ``resolution`` of modularity gives smaller communities; components below ``min_component`` nodes are in none.
    """
    try:
        import graspologic_native
    except ImportError as error:
        raise ValueError("communities need the package `graspologic-native`: pip install graphrerank[retag]") from error
    inside = in_components(edges, min_component)
    edges, weight = edges[inside], weight[inside]
    if not len(edges):
        return Hierarchy([], [], [])
    pairs = [(str(a), str(b), w) for (a, b), w in zip(edges.tolist(), weight.double().tolist(), strict=True)]
    members: dict[tuple[int, int], list[int]] = {}  # by level and cluster
    parent: dict[tuple[int, int], int] = {}
    for entry in graspologic_native.hierarchical_leiden(
        pairs, resolution=resolution, max_cluster_size=max_community, seed=seed
    ):
        key = (entry.level, entry.cluster)
        members.setdefault(key, []).append(int(entry.node))
        parent[key] = -1 if entry.parent_cluster is None else entry.parent_cluster
    order = sorted(members, key=lambda key: (key[0], min(members[key])))
    index = {key: community for community, key in enumerate(order)}
    return Hierarchy(
        level=[level for level, _ in order],
        parent=[index[level - 1, parent[level, cluster]] if level else -1 for level, cluster in order],
        members=[sorted(members[key]) for key in order],
    )


def in_components(edges: Tensor, min_component: int) -> Tensor:
    """Return which edges ``[m, 2]`` int64 lie in connected components of ``min_component`` nodes or more: ``[m]`` bool.

    Example:
        >>> in_components(torch.tensor([[0, 1], [2, 3], [3, 4]]), 3)
        tensor([False,  True,  True])
    """
    nodes, ends = torch.unique(edges, return_inverse=True)
    head, tail = ends.reshape(-1, 2).T.numpy()
    adjacency = coo_matrix((np.ones(len(head)), (head, tail)), shape=(len(nodes), len(nodes)))
    _, label = connected_components(adjacency, directed=False)
    return torch.from_numpy(np.bincount(label)[label[head]] >= min_component) if len(head) else edges[:, 0] > 0
