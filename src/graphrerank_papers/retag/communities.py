"""Hierarchical communities by the Leiden algorithm, and their growth with the graph."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from graphrerank_papers.retag.index import ReTAGSettings


@dataclass(frozen=True)
class Hierarchy:
    """Nested communities, ordered by level, then by their smallest member."""

    level: Sequence[int]  # level of each; 0 is the coarsest
    parent: Sequence[int]  # the community of the level above that contains it; -1 at level 0
    members: Sequence[Sequence[int]]  # nodes of each, ascending

    def __len__(self) -> int:
        return len(self.members)


def hierarchical_leiden(edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> Hierarchy:
    """Find communities, and split those of ``max_community`` nodes or more recursively, if Leiden can.

    Source: "From Louvain to Leiden", 2019, as used by GraphRAG ("From Local to Global", 2024, section 3.1.3), in the
    implementation of Microsoft's ``graspologic-native``.

    ``edges`` are ``[m, 2]`` int64, undirected, unique pairs, with a positive ``weight`` ``[m]``. Read of the settings:
    ``resolution`` (of modularity), ``max_community``, ``min_component`` and ``seed``.
    """
    try:
        import graspologic_native
    except ImportError as error:
        raise ValueError("communities need the package `graspologic-native`: pip install graphrerank[retag]") from error
    if len(edges):
        inside = _in_components(edges, settings.min_component)
        edges, weight = edges[inside], weight[inside]
    if not len(edges):
        return Hierarchy([], [], [])
    pairs = [(str(a), str(b), w) for (a, b), w in zip(edges.tolist(), weight.double().tolist(), strict=True)]
    members: dict[tuple[int, int], list[int]] = {}  # by level and cluster
    parent: dict[tuple[int, int], int] = {}
    for entry in graspologic_native.hierarchical_leiden(
        pairs, resolution=settings.resolution, max_cluster_size=settings.max_community, seed=settings.seed
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


def _in_components(edges: Tensor, min_component: int) -> Tensor:
    """Return which edges ``[m, 2]`` lie in connected components of ``min_component`` nodes or more: ``[m]`` bool."""
    nodes, ends = torch.unique(edges, return_inverse=True)
    head, tail = ends.reshape(-1, 2).T.numpy()
    adjacency = coo_matrix((np.ones(len(head)), (head, tail)), shape=(len(nodes), len(nodes)))
    _, label = connected_components(adjacency, directed=False)
    return torch.from_numpy(np.bincount(label)[label[head]] >= min_component)


def graft(hierarchy: Hierarchy, edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> Hierarchy:
    """Let the communities of a grown graph absorb its new nodes.

    A new node joins the finest community to which most of its edges' weight leads, the smaller index on ties. This is
    repeated until no remaining node has a neighbour in a community. Connected components of at least ``min_component``
    remaining nodes form new communities. A community that gained nodes and has ``max_community`` or more is split on
    the next level. ``edges`` are ``[m, 2]`` int64, ``weight`` ``[m]``, of the graph now.
    """
    pairs = list(zip(edges.tolist(), weight.tolist(), strict=True))
    finest = {node: community for community, members in enumerate(hierarchy.members) for node in members}
    joined = _join(pairs, finest)
    level, parent = list(hierarchy.level), list(hierarchy.parent)
    members = [list(nodes) for nodes in hierarchy.members]
    for node, community in joined.items():
        while community >= 0:
            members[community].append(node)
            community = parent[community]

    def add_communities(nodes: set[int], below: int) -> None:
        """Cluster nodes, below a community that they make up or, if it is -1, at level 0."""
        inside = torch.isin(edges, torch.tensor(sorted(nodes))).all(dim=1)
        least = 1 if below >= 0 else settings.min_component
        clusters = hierarchical_leiden(edges[inside], weight[inside], replace(settings, min_component=least))
        first, depth = len(members), 0 if below < 0 else level[below] + 1
        coarsest = [nodes for nodes, at in zip(clusters.members, clusters.level, strict=True) if at == 0]
        if below >= 0 and (len(coarsest) < 2 or sum(map(len, coarsest)) < len(nodes)):
            return  # it cannot be split
        level.extend(depth + at for at in clusters.level)
        parent.extend(below if above < 0 else first + above for above in clusters.parent)
        members.extend(list(nodes) for nodes in clusters.members)

    for community in sorted(set(joined.values())):
        if len(members[community]) >= settings.max_community:
            add_communities(set(members[community]), community)
    placed = finest.keys() | joined.keys()
    if unplaced := {node for pair, _ in pairs for node in pair if node not in placed}:
        add_communities(unplaced, -1)
    order = sorted(range(len(members)), key=lambda community: (level[community], min(members[community])))
    index = {old: new for new, old in enumerate(order)}
    return Hierarchy(
        level=[level[old] for old in order],
        parent=[index[parent[old]] if parent[old] >= 0 else -1 for old in order],
        members=[sorted(members[old]) for old in order],
    )


def _join(pairs: Sequence[tuple[Sequence[int], float]], finest: dict[int, int]) -> dict[int, int]:
    """Choose a community for each new node connected to one, directly or through new nodes."""
    neighbours: dict[int, list[tuple[int, float]]] = {}
    for (head, tail), weight in pairs:
        for node, other in ((head, tail), (tail, head)):
            if node not in finest:
                neighbours.setdefault(node, []).append((other, weight))
    joined: dict[int, int] = {}
    while True:
        chosen = {}
        for node in sorted(neighbours.keys() - joined.keys()):
            strength: dict[int, float] = {}
            for other, weight in neighbours[node]:
                community = finest.get(other, joined.get(other))
                if community is not None:
                    strength[community] = strength.get(community, 0.0) + weight
            if strength:
                chosen[node] = min(strength, key=lambda community: (-strength[community], community))
        if not chosen:
            return joined
        joined.update(chosen)
