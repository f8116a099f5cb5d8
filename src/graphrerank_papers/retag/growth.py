"""Communities of a graph that grew: new nodes join the communities that the graph already has."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from graphrerank_papers.retag.entity_graph import Hierarchy, hierarchical_leiden, order_hierarchy
from graphrerank_papers.retag.index import ReTAGSettings

#: Two nodes of an edge, and its weight.
WeightedPair = tuple[Sequence[int], float]


def graft(hierarchy: Hierarchy, edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> Hierarchy:
    """Add the new nodes of a graph to its communities.

    A new node joins the finest community to which most of the weight of its edges leads, directly or through other new
    nodes. Connected components of at least ``min_component`` remaining nodes become new communities. A community that
    gained nodes and has at least ``max_community`` of them is divided on the next level.

    Source: this project, for the first open question of ReTAG, the update of an index.

    Args:
        hierarchy: Communities of the graph before it grew.
        edges: Undirected edges ``[m, 2]`` int64 of the grown graph, unique pairs.
        weight: Positive weight of each edge ``[m]``.
        settings: Settings of the index.

    Returns:
        Communities of the grown graph.

    Raises:
        ValueError: If ``graspologic-native`` is not installed.
    """
    pairs = list(zip(edges.tolist(), weight.tolist(), strict=True))
    finest = {node: community for community, members in enumerate(hierarchy.members) for node in members}
    joined = joined_communities(pairs, finest)
    communities = _Communities(hierarchy, edges, weight, settings)
    for node, community in joined.items():
        communities.add_node(node, community)
    for community in sorted(set(joined.values())):
        if len(communities.members[community]) >= settings.max_community:
            communities.divide(community)
    if isolated := set(edges.flatten().tolist()) - finest.keys() - joined.keys():
        communities.add_components(isolated)
    return order_hierarchy(communities.level, communities.parent, communities.members)


def joined_communities(pairs: Sequence[WeightedPair], finest: Mapping[int, int]) -> dict[int, int]:
    """Choose a community for each new node that is connected to one. On ties, the community with the lower index wins.

    Args:
        pairs: Edges of the grown graph with their weights.
        finest: Finest community of each node that has one.

    Returns:
        Community of each new node that is connected to a community, directly or through other new nodes.
    """
    joined: dict[int, int] = {}
    while True:
        placed = {**finest, **joined}
        strength: dict[int, dict[int, float]] = defaultdict(lambda: defaultdict(float))
        for node, neighbour, weight in _directions(pairs):
            if neighbour in placed and node not in placed:
                strength[node][placed[neighbour]] += weight
        if not strength:
            return joined
        joined |= {node: max(sorted(sums), key=sums.__getitem__) for node, sums in strength.items()}


def _directions(pairs: Sequence[WeightedPair]) -> Iterator[tuple[int, int, float]]:
    """Yield each edge in both directions."""
    for (head, tail), weight in pairs:
        yield head, tail, weight
        yield tail, head, weight


class _Communities:
    """Communities that grow, with the interface of :class:`Hierarchy` in no particular order."""

    def __init__(self, hierarchy: Hierarchy, edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> None:
        self.level, self.parent = list(hierarchy.level), list(hierarchy.parent)
        self.members = [list(nodes) for nodes in hierarchy.members]
        self._edges, self._weight, self._settings = edges, weight, settings

    def add_node(self, node: int, community: int) -> None:
        """Add a node to a community and to all communities above it."""
        while community >= 0:
            self.members[community].append(node)
            community = self.parent[community]

    def divide(self, community: int) -> None:
        """Divide a community on the next level, unless Leiden finds no division."""
        nodes = set(self.members[community])
        clusters = self._cluster(nodes, min_component=1)
        coarsest = [members for members, level in zip(clusters.members, clusters.level, strict=True) if level == 0]
        if len(coarsest) >= 2 and sum(map(len, coarsest)) == len(nodes):
            self._append(clusters, parent=community, depth=self.level[community] + 1)

    def add_components(self, nodes: set[int]) -> None:
        """Add the communities of nodes that are connected to no community."""
        self._append(self._cluster(nodes, min_component=self._settings.min_component), parent=-1, depth=0)

    def _cluster(self, nodes: set[int], *, min_component: int) -> Hierarchy:
        """Find the communities of the subgraph of some nodes."""
        inside = torch.isin(self._edges, torch.tensor(sorted(nodes))).all(dim=1)
        settings = replace(self._settings, min_component=min_component)
        return hierarchical_leiden(self._edges[inside], self._weight[inside], settings)

    def _append(self, clusters: Hierarchy, *, parent: int, depth: int) -> None:
        """Append a hierarchy below a community, or at level 0 if ``parent`` is -1."""
        first = len(self.members)
        self.level.extend(depth + level for level in clusters.level)
        self.parent.extend(parent if above < 0 else first + above for above in clusters.parent)
        self.members.extend(list(nodes) for nodes in clusters.members)
