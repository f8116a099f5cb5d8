"""Communities at several levels: hierarchical Leiden."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor


@dataclass(frozen=True)
class Hierarchy:
    """Communities within communities, level by level, those of a level by their smallest member.

    Attributes:
        level: Of each; 0 is the coarsest.
        parent: The community of the level above that holds it; -1 at level 0.
        members: Node numbers of each, ascending.
    """

    level: Sequence[int]
    parent: Sequence[int]
    members: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.members)

    @property
    def by_level(self) -> list[dict[int, int]]:
        """For each level the community of each node; a node whose community was not split is in no finer one."""
        found: list[dict[int, int]] = [{} for _ in range(max(self.level, default=-1) + 1)]
        for community, (level, nodes) in enumerate(zip(self.level, self.members, strict=True)):
            found[level].update(dict.fromkeys(nodes, community))
        return found

    @property
    def children(self) -> list[list[int]]:
        """The communities that each was split into, ascending."""
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
    """Find communities, and communities within those that have ``max_community`` nodes or more and can be split.

    Source: "From Louvain to Leiden", 2019, as GraphRAG ("From Local to Global", 2024, section 3.1.3) uses it; the code
    is Microsoft's, ``graspologic-native``.

    Args:
        edges: ``[m, 2]`` int64, undirected, each pair once; a node is what an edge ends at.
        weight: ``[m]``, positive.
        resolution: Of modularity; larger: smaller communities.
        max_community: Those of so many nodes or more are split on the next level, if Leiden finds several in them.
        min_component: Nodes of smaller connected components are in no community.
        seed: Same seed, same communities.

    Raises:
        ValueError: If the package ``graspologic-native`` is not installed.

    Example:
        >>> import torch
        >>> triangles = torch.tensor([[0, 1], [1, 2], [0, 2], [2, 3], [3, 4], [4, 5], [3, 5]])
        >>> hierarchical_leiden(triangles, torch.ones(7)).members
        [[0, 1, 2], [3, 4, 5]]
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
    found = graspologic_native.hierarchical_leiden(
        pairs, resolution=resolution, max_cluster_size=max_community, seed=seed
    )
    members: dict[tuple[int, int], list[int]] = {}
    parent: dict[tuple[int, int], int] = {}
    for entry in found:
        own = (entry.level, entry.cluster)
        members.setdefault(own, []).append(int(entry.node))
        parent[own] = -1 if entry.parent_cluster is None else entry.parent_cluster
    order = sorted(members, key=lambda own: (own[0], min(members[own])))
    number = {own: place for place, own in enumerate(order)}
    return Hierarchy(
        level=[level for level, _ in order],
        parent=[number[level - 1, parent[level, cluster]] if level else -1 for level, cluster in order],
        members=[sorted(members[own]) for own in order],
    )


def in_components(edges: Tensor, min_component: int) -> Tensor:
    """Tell which edges lie in connected components of at least ``min_component`` nodes.

    Args:
        edges: ``[m, 2]`` int64.
        min_component: Nodes.

    Returns:
        ``[m]`` bool.

    Example:
        >>> in_components(torch.tensor([[0, 1], [2, 3], [3, 4]]), 3)
        tensor([False,  True,  True])
    """
    nodes, ends = torch.unique(edges, return_inverse=True)
    head, tail = ends.reshape(-1, 2).T.numpy()
    joined = coo_matrix((np.ones(len(head)), (head, tail)), shape=(len(nodes), len(nodes)))
    _, label = connected_components(joined, directed=False)
    return torch.from_numpy(np.bincount(label)[label[head]] >= min_component) if len(head) else edges[:, 0] > 0
