"""Summaries of the communities of one graph, from the finest level up, and the texts that they are made from."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from graphrerank_papers.retag.communities import Hierarchy


@dataclass(frozen=True)
class Material:
    """Texts that describe entities and relations, followed by summaries that a language model wrote."""

    texts: list[str]  # `n` texts
    num_tokens: list[int]
    sources: list[list[int]]  # passages of each, ascending
    nodes: Sequence[Sequence[int]]  # indices of the texts about each of `E` entities
    edges: Sequence[Sequence[int]]  # indices of the texts about each of `m` related pairs

    def copy(self) -> "Material":
        """Copy the lists to which :meth:`add` appends."""
        return replace(self, texts=[*self.texts], num_tokens=[*self.num_tokens], sources=[*self.sources])

    def after(self, first: int) -> "Material":
        """Keep the texts from ``first`` on, and nothing about entities and relations."""
        return Material(self.texts[first:], self.num_tokens[first:], self.sources[first:], [], [])

    def __add__(self, other: "Material") -> "Material":
        """Append the texts of :meth:`after`."""
        return Material(
            self.texts + other.texts,
            self.num_tokens + other.num_tokens,
            self.sources + other.sources,
            self.nodes,
            self.edges,
        )

    def add(self, text: str, num_tokens: int, sources: Iterable[int]) -> int:
        """Append a text and return its index."""
        self.texts.append(text)
        self.num_tokens.append(num_tokens)
        self.sources.append(sorted(set(sources)))
        return len(self.texts) - 1

    def first(self, texts: Sequence[int], limit: int) -> list[int]:
        """Select texts greedily in order, skipping those that exceed the rest of ``limit`` tokens."""
        selected = []
        for text in texts:
            if self.num_tokens[text] <= limit:
                selected.append(text)
                limit -= self.num_tokens[text]
        return selected


def join_texts(material: Material, texts: Sequence[int]) -> str:
    """Join texts by spaces."""
    return " ".join(material.texts[text] for text in texts)


@dataclass(frozen=True)
class Relations:
    """The related pairs of one graph."""

    ends: Sequence[tuple[int, int]]  # the two entities of each
    positions: Sequence[int]  # index of each among the pairs of the corpus
    degree: Mapping[int, int]  # degree of each related entity

    @classmethod
    def of(cls, ends: Sequence[tuple[int, int]], positions: Sequence[int]) -> "Relations":
        """Count degrees.

        Example:
            >>> Relations.of([(0, 1), (1, 2)], [0, 1]).degree
            Counter({1: 2, 0: 1, 2: 1})
        """
        return cls(ends, positions, Counter(node for pair in ends for node in pair))


def element_texts(hierarchy: Hierarchy, relations: Relations, material: Material) -> list[list[int]]:
    """List the texts about each community's relations, then about its entities, the prominent ones first, each once.

    A relation's prominence is the sum of its ends' degrees; ties are broken by index.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4). *Where we differ:* there an edge's two nodes are
    described before it; we put relations first, since nodes share them.
    """
    degree = relations.degree
    ranked_edges = sorted(
        range(len(relations.ends)), key=lambda edge: (-sum(degree[node] for node in relations.ends[edge]), edge)
    )
    elements: list[dict[int, None]] = [{} for _ in hierarchy.members]
    for community_of in hierarchy.by_level:
        for edge in ranked_edges:
            head, tail = relations.ends[edge]
            community = community_of.get(head)
            if community is not None and community == community_of.get(tail):
                elements[community].update(dict.fromkeys(material.edges[relations.positions[edge]]))
    for texts, members in zip(elements, hierarchy.members, strict=True):
        for node in sorted(members, key=lambda node: (-degree[node], node)):
            texts.update(dict.fromkeys(material.nodes[node]))
    return [list(texts) for texts in elements]


def parent_context(
    elements: Sequence[Sequence[int]], summaries: Sequence[Sequence[int]], num_tokens: Sequence[int], *, limit: int
) -> list[int]:
    """Replace children's texts by their summaries, the longest first, until everything fits ``limit`` tokens.

    ``elements`` are the text indices of each child, the most prominent child first. Returns unique text indices, child
    by child; too long only if even the summaries are.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).

    Example:
        >>> parent_context([[0, 1], [2, 3]], [[1], [3]], [4, 2, 6, 1], limit=8)
        [0, 1, 3]
    """
    lengths = [sum(num_tokens[text] for text in texts) for texts in elements]
    chosen = list(elements)
    uses = Counter(text for texts in elements for text in texts)
    total = sum(num_tokens[text] for text in uses)
    for child in sorted(range(len(elements)), key=lambda child: (-lengths[child], child)):
        if total <= limit:
            break
        for text in elements[child]:
            uses[text] -= 1
            total -= num_tokens[text] * (uses[text] == 0)
        for text in summaries[child]:
            total += num_tokens[text] * (uses[text] == 0)
            uses[text] += 1
        chosen[child] = summaries[child]
    return list(dict.fromkeys(text for texts in chosen for text in texts))


def summarise_communities(
    hierarchy: Hierarchy,
    relations: Relations,
    material: Material,
    summarise: Callable[[Sequence[Sequence[int]], Material], list[list[int]]],
    *,
    context_tokens: int,
) -> list[list[int]]:
    """Summarise every community, from the finest level up.

    The context of a summary is the community's texts, the prominent first, truncated to ``context_tokens``. If they are
    too long and the community was split, summaries of its children first replace the longest of the children's texts.

    ``summarise`` summarises each of ``n`` lists of texts by some of them, or by a text that it adds to the material.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).

    Returns:
        Text indices of each community's summary.
    """
    elements = element_texts(hierarchy, relations, material)
    prominence = [sum(relations.degree[node] for node in members) for members in hierarchy.members]
    children_of = hierarchy.children
    summaries: dict[int, Sequence[int]] = {}
    for level in reversed(range(max(hierarchy.level, default=-1) + 1)):
        of_level = [community for community in range(len(hierarchy)) if hierarchy.level[community] == level]
        contexts = []
        for community in of_level:
            texts, children = elements[community], children_of[community]
            if children and sum(material.num_tokens[text] for text in texts) > context_tokens:
                children = sorted(children, key=lambda child: (-prominence[child], child))
                texts = parent_context(
                    [elements[child] for child in children],
                    [summaries[child] for child in children],
                    material.num_tokens,
                    limit=context_tokens,
                )
            contexts.append(material.first(texts, context_tokens))
        summaries.update(zip(of_level, summarise(contexts, material), strict=True))
    return [list(summaries[community]) for community in range(len(hierarchy))]
