"""Adding passages to a ReTAG index: which communities grow, which are new, and which stay unchanged."""

from collections.abc import Sequence

import torch
from torch import Tensor

from graphrerank_papers.retag.entity_graph import EntityGraph
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings, Subgraph
from graphrerank_papers.retag.leiden import Hierarchy, hierarchical_leiden
from graphrerank_papers.retag.summary_material import Material, Relations


class PreviousIndex:
    """An index to which passages are added; its entities come first among the ``E`` names of the grown corpus."""

    def __init__(self, index: ReTAGIndex, names: Sequence[str]) -> None:
        known = len(index.entities)
        if list(names[:known]) != list(index.entities):
            raise ValueError(f"`passages` must begin with those of the index, got others: its {known} entities differ")
        self.index = index
        self._num_entities = len(names)
        self._num_passages = len(index.passage_ids)
        self._position_of: dict[tuple[int, str], int] = {}  # material text of a passage's sentence

    @property
    def entities(self) -> Tensor:
        """``[E, T]`` bool, the entities of each topic."""
        is_member = torch.zeros(self._num_entities, len(self.index.topics), dtype=torch.bool)
        for topic, graph in enumerate(self.index.graphs[1:]):
            is_member[graph.nodes, topic] = True
        return is_member

    def relations(self, graph: EntityGraph) -> Tensor:
        """Return ``[m, T]`` bool: which relations of the grown graph belong to which topic."""
        key = graph.edges[:, 0] * self._num_entities + graph.edges[:, 1]  # ascending, as the edges are
        is_member = torch.zeros(len(key), len(self.index.topics), dtype=torch.bool)
        for topic, known in enumerate(self.index.graphs[1:]):
            topic_key = known.edges[:, 0] * self._num_entities + known.edges[:, 1]
            is_member[torch.searchsorted(key, topic_key), topic] = True
        return is_member

    def grow(self, graph_index: int, graph: Subgraph) -> tuple[Hierarchy, list[int]]:
        """Let a graph's communities grow by :func:`graft`; origins are communities of the index."""
        communities = self.index.communities
        indices = (communities.graph == graph_index).nonzero().flatten().tolist()
        first = indices[0] if indices else 0
        hierarchy = Hierarchy(
            level=communities.level[indices].tolist(),
            parent=[parent if parent < 0 else parent - first for parent in communities.parent[indices].tolist()],
            members=[communities.members[community].tolist() for community in indices],
        )
        grown, origin = graft(hierarchy, graph.edges, graph.weight, self.index.settings)
        return grown, [old if old < 0 else first + old for old in origin]

    def known_summaries(
        self,
        graph_index: int,
        hierarchy: Hierarchy,
        origin: Sequence[int],
        relations: Relations,
        material: Material,
        *,
        is_extractive: bool,
    ) -> dict[int, list[int]]:
        """Find the summaries that remain valid: text indices by community.

        A community changes if an entity or a relation is new to its graph, or if the material has a text about one of
        them from a new passage. ``origin`` is the index's community that each was; summaries by a language model are
        appended to the material.
        """
        old = self.index.graphs[graph_index]
        nodes, edges = set(old.nodes.tolist()), set(map(tuple, old.edges.tolist()))
        fresh_nodes = {
            node for node in relations.degree if node not in nodes or self._is_fresh(material, material.nodes[node])
        }
        fresh_edges = [
            ends
            for ends, position in zip(relations.ends, relations.positions, strict=True)
            if ends not in edges or self._is_fresh(material, material.edges[position])
        ]
        changed: set[int | None] = set()
        for community_of in hierarchy.by_level:
            changed |= {community_of.get(node) for node in fresh_nodes}
            ends = ((community_of.get(head), community_of.get(tail)) for head, tail in fresh_edges)
            changed |= {head for head, tail in ends if head == tail}
        return {
            community: self._recall(before, material, is_extractive=is_extractive)
            for community, before in enumerate(origin)
            if before >= 0 and community not in changed
        }

    def _recall(self, community: int, material: Material, *, is_extractive: bool) -> list[int]:
        known = self.index.communities
        if is_extractive:
            if not self._position_of:
                for position, (text, sources) in enumerate(zip(material.texts, material.sources, strict=True)):
                    self._position_of.setdefault((sources[0], text), position)
            sentences = self.index.sentences
            return [
                self._position_of[int(sentences.passage[sentence]), sentences.texts[sentence]]
                for sentence in known.sentences[community].tolist()
            ]
        if not known.texts[community]:
            return []
        sources = known.sources[community].tolist()
        return [material.add(known.texts[community], int(known.num_tokens[community]), sources)]

    def _is_fresh(self, material: Material, texts: Sequence[int]) -> bool:
        return any(material.sources[text][-1:] >= [self._num_passages] for text in texts)


def graft(hierarchy: Hierarchy, edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> tuple[Hierarchy, list[int]]:
    """Let the communities of a grown graph absorb its new nodes.

    A new node joins the finest community to which most of its edges' weight leads, the smaller index on ties. This is
    repeated until no remaining node has a neighbour in a community. Connected components of at least ``min_component``
    remaining nodes form new communities. A community that gained nodes and has ``max_community`` or more is split on
    the next level. ``edges`` are ``[m, 2]`` int64, ``weight`` ``[m]``, of the graph now.

    Returns:
        The communities now, and the previous index of each; -1 for a new one.
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

    edges_from: dict[int, list[int]] = {}
    for edge, ((head, _), _) in enumerate(pairs):
        edges_from.setdefault(head, []).append(edge)

    def add_communities(nodes: set[int], below: int) -> None:
        """Cluster nodes, below a community that they make up or, if it is -1, at level 0."""
        inside = torch.tensor(
            sorted(edge for node in nodes for edge in edges_from.get(node, ()) if pairs[edge][0][1] in nodes),
            dtype=torch.int64,
        )
        clusters = hierarchical_leiden(
            edges[inside],
            weight[inside],
            resolution=settings.resolution,
            max_community=settings.max_community,
            min_component=1 if below >= 0 else settings.min_component,
            seed=settings.seed,
        )
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
    result = Hierarchy(
        level=[level[old] for old in order],
        parent=[index[parent[old]] if parent[old] >= 0 else -1 for old in order],
        members=[sorted(members[old]) for old in order],
    )
    return result, [old if old < len(hierarchy) else -1 for old in order]


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
