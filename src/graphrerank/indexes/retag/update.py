"""Adding passages to a ReTAG index: which communities grow, which are new, and which stay as they are."""

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.indexes.retag.entity_graph import EntityGraph
from graphrerank.indexes.retag.index import ReTAGIndex, ReTAGSettings, Subgraph
from graphrerank.indexes.retag.leiden import Hierarchy, hierarchical_leiden
from graphrerank.indexes.retag.summary_material import Material, Relations


class OldIndex:
    """An index that passages are added to.

    Args:
        index: The index.
        names: ``E`` entities of the grown corpus; those of the index come first.

    Raises:
        ValueError: If they do not.
    """

    def __init__(self, index: ReTAGIndex, names: Sequence[str]) -> None:
        known = len(index.entities)
        if list(names[:known]) != list(index.entities):
            raise ValueError(f"`passages` must begin with those of the index, got others: its {known} entities differ")
        self.index = index
        self._num_entities = len(names)
        self._num_passages = len(index.passage_ids)
        self._places: dict[tuple[int, str], int] = {}  # of sentences among the material's texts, by passage and text

    @property
    def entities(self) -> Tensor:
        """``[E, T]`` bool, the entities that each topic has."""
        found = torch.zeros(self._num_entities, len(self.index.topics), dtype=torch.bool)
        for topic, graph in enumerate(self.index.graphs[1:]):
            found[graph.nodes, topic] = True
        return found

    def relations(self, graph: EntityGraph) -> Tensor:
        """``[m, T]`` bool, which of a grown graph's relations each topic has."""
        key = graph.edges[:, 0] * self._num_entities + graph.edges[:, 1]  # ascending, as the edges are
        found = torch.zeros(len(key), len(self.index.topics), dtype=torch.bool)
        for topic, own in enumerate(self.index.graphs[1:]):
            found[torch.searchsorted(key, own.edges[:, 0] * self._num_entities + own.edges[:, 1]), topic] = True
        return found

    def grafted(self, number: int, graph: Subgraph) -> tuple[Hierarchy, list[int]]:
        """Let a graph's communities grow; as :func:`graft`, with community numbers of the index."""
        numbers = self._numbers[number]
        own = self.index.communities
        begin = numbers[0] if numbers else 0
        hierarchy = Hierarchy(
            level=own.level[numbers].tolist(),
            parent=[parent if parent < 0 else parent - begin for parent in own.parent[numbers].tolist()],
            members=[self._members[community] for community in numbers],
        )
        grown, origin = graft(hierarchy, graph.edges, graph.weight, self.index.settings)
        return grown, [old if old < 0 else begin + old for old in origin]

    def known_summaries(
        self, number: int, hierarchy: Hierarchy, origin: Sequence[int], relations: Relations, material: Material, *,
        picked: bool,
    ) -> dict[int, list[int]]:  # fmt: skip
        """Find the summaries that stay.

        Touched, and so left out, is a community with an entity or a relation that is new to its graph, or of which the
        material has a text from a new passage.

        Args:
            number: Of the graph.
            hierarchy: Its communities now.
            origin: The community of the index that each was.
            relations: Its related pairs now.
            material: What summaries are made from; a summary that is no list of sentences is added to it.
            picked: Whether summaries consist of the corpus's sentences.

        Returns:
            Text numbers of each summary that stays, by community.
        """
        old = self.index.graphs[number]
        nodes, edges = set(old.nodes.tolist()), set(map(tuple, old.edges.tolist()))
        fresh_nodes = {
            node for node in relations.degree if node not in nodes or self._is_fresh(material, material.nodes[node])
        }
        fresh_edges = [
            pair
            for pair, edge in zip(relations.ends, relations.numbers, strict=True)
            if pair not in edges or self._is_fresh(material, material.edges[edge])
        ]
        touched: set[int | None] = set()
        for own in hierarchy.by_level:
            touched |= {own.get(node) for node in fresh_nodes}
            touched |= {own.get(head) for head, tail in fresh_edges if own.get(head) == own.get(tail)}
        return {
            community: self._recall(before, material, picked=picked)
            for community, before in enumerate(origin)
            if before >= 0 and community not in touched
        }

    def _recall(self, community: int, material: Material, *, picked: bool) -> list[int]:
        own = self.index.communities
        if picked:
            return [self._place(sentence, material) for sentence in own.sentences[community].tolist()]
        if not own.texts[community]:
            return []
        sources = own.sources[community].tolist()
        return [material.add(own.texts[community], int(own.num_tokens[community]), sources)]

    def _is_fresh(self, material: Material, numbers: Sequence[int]) -> bool:
        return any(material.sources[number][-1:] >= [self._num_passages] for number in numbers)

    def _place(self, sentence: int, material: Material) -> int:
        """Find a sentence of the index among the material's texts."""
        if not self._places:
            for number, (text, sources) in enumerate(zip(material.texts, material.sources, strict=True)):
                self._places.setdefault((sources[0], text), number)
        known = self.index.sentences
        return self._places[int(known.passage[sentence]), known.texts[sentence]]

    @cached_property
    def _members(self) -> list[list[int]]:
        return self.index.communities.members.tolist()

    @cached_property
    def _numbers(self) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in self.index.graphs]
        for community, graph in enumerate(self.index.communities.graph.tolist()):
            rows[graph].append(community)
        return rows


def graft(hierarchy: Hierarchy, edges: Tensor, weight: Tensor, settings: ReTAGSettings) -> tuple[Hierarchy, list[int]]:
    """Let communities take up the new nodes of a graph that grew.

    A new node joins the finest community that most of its edges' weight leads to, the smaller number among equals; in
    rounds, until none is left that is joined to a community. What remains makes communities of its own, where at least
    ``min_component`` nodes hang together. A community
    that took up nodes and then has ``max_community`` or more is split on the next level.

    Args:
        hierarchy: Communities of the graph before.
        edges: ``[m, 2]`` int64, of the graph now.
        weight: ``[m]``.
        settings: Of communities, and their seed.

    Returns:
        The communities now, and the number that each had before; -1 for a new one.
    """
    pairs = list(zip(edges.tolist(), weight.tolist(), strict=True))
    finest = {node: community for community, members in enumerate(hierarchy.members) for node in members}
    grown = _join(pairs, finest)
    level, parent = list(hierarchy.level), list(hierarchy.parent)
    members = [list(nodes) for nodes in hierarchy.members]
    for node, community in grown.items():
        while community >= 0:
            members[community].append(node)
            community = parent[community]

    leaving: dict[int, list[int]] = {}
    for edge, ((head, _), _) in enumerate(pairs):
        leaving.setdefault(head, []).append(edge)

    def put(nodes: set[int], below: int) -> None:
        inside = torch.tensor(
            sorted(edge for node in nodes for edge in leaving.get(node, ()) if pairs[edge][0][1] in nodes),
            dtype=torch.int64,
        )
        found = hierarchical_leiden(
            edges[inside],
            weight[inside],
            resolution=settings.resolution,
            max_community=settings.max_community,
            min_component=1 if below >= 0 else settings.min_component,
            seed=settings.seed,
        )
        begin, depth = len(members), 0 if below < 0 else level[below] + 1
        whole = sum(len(own) for own, at in zip(found.members, found.level, strict=True) if not at)
        if below >= 0 and (found.level.count(0) < 2 or whole < len(nodes)):
            return  # it cannot be split
        level.extend(depth + at for at in found.level)
        parent.extend(below if above < 0 else begin + above for above in found.parent)
        members.extend(list(own) for own in found.members)

    for community in sorted(set(grown.values())):
        if len(members[community]) >= settings.max_community:
            put(set(members[community]), community)
    placed = finest.keys() | grown.keys()
    if rest := {node for pair, _ in pairs for node in pair if node not in placed}:
        put(rest, -1)
    order = sorted(range(len(members)), key=lambda own: (level[own], min(members[own])))
    now = {old: place for place, old in enumerate(order)}
    result = Hierarchy(
        level=[level[old] for old in order],
        parent=[now[parent[old]] if parent[old] >= 0 else -1 for old in order],
        members=[sorted(members[old]) for old in order],
    )
    return result, [old if old < len(hierarchy) else -1 for old in order]


def _join(pairs: Sequence[tuple[Sequence[int], float]], finest: dict[int, int]) -> dict[int, int]:
    """Choose a community for each new node that is joined to one, directly or through new nodes."""
    neighbours: dict[int, list[tuple[int, float]]] = {}
    for (head, tail), strength in pairs:
        for node, other in ((head, tail), (tail, head)):
            if node not in finest:
                neighbours.setdefault(node, []).append((other, strength))
    grown: dict[int, int] = {}
    while True:
        chosen = {}
        for node in sorted(neighbours.keys() - grown.keys()):
            pull: dict[int, float] = {}
            for other, strength in neighbours[node]:
                community = finest.get(other, grown.get(other))
                if community is not None:
                    pull[community] = pull.get(community, 0.0) + strength
            if pull:
                chosen[node] = min(pull, key=lambda community: (-pull[community], community))
        if not chosen:
            return grown
        grown.update(chosen)
