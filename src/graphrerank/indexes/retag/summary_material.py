"""What summaries of communities are made from: texts about entities and relations, in the order of their prominence."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from graphrerank.indexes.retag.leiden import Hierarchy


@dataclass(frozen=True)
class Material:
    """Texts that tell of entities and relations; what a language model writes is put behind them.

    Attributes:
        texts: ``n`` texts.
        num_tokens: Of each.
        sources: Numbers of the passages that each comes from, ascending.
        nodes: Numbers of the texts that tell of each of ``E`` entities.
        edges: Numbers of the texts that tell of each of ``m`` related pairs.
    """

    texts: list[str]
    num_tokens: list[int]
    sources: list[list[int]]
    nodes: Sequence[Sequence[int]]
    edges: Sequence[Sequence[int]]

    def grown(self) -> "Material":
        """Copy what grows when a text is added."""
        return replace(self, texts=[*self.texts], num_tokens=[*self.num_tokens], sources=[*self.sources])

    def add(self, text: str, num_tokens: int, sources: Iterable[int]) -> int:
        """Put a text behind the others and return its number."""
        self.texts.append(text)
        self.num_tokens.append(num_tokens)
        self.sources.append(sorted(set(sources)))
        return len(self.texts) - 1

    def first(self, numbers: Sequence[int], limit: int) -> list[int]:
        """Take texts as far as ``limit`` tokens go: the first of those that fit, in their order."""
        taken = []
        for number in numbers:
            if self.num_tokens[number] <= limit:
                taken.append(number)
                limit -= self.num_tokens[number]
        return taken


@dataclass(frozen=True)
class Relations:
    """The related pairs of one graph.

    Attributes:
        ends: Two entity numbers of each.
        numbers: The place of each among the pairs of the whole corpus.
        degree: Of each entity that is related.
    """

    ends: Sequence[tuple[int, int]]
    numbers: Sequence[int]
    degree: dict[int, int]

    @classmethod
    def of(cls, ends: Sequence[tuple[int, int]], numbers: Sequence[int]) -> "Relations":
        """Count degrees.

        Example:
            >>> Relations.of([(0, 1), (1, 2)], [0, 1]).degree
            {0: 1, 1: 2, 2: 1}
        """
        degree: dict[int, int] = {}
        for pair in ends:
            for node in pair:
                degree[node] = degree.get(node, 0) + 1
        return cls(ends, numbers, degree)


def element_texts(hierarchy: Hierarchy, relations: Relations, material: Material) -> list[list[int]]:
    """List what there is to say of each community: of its relations, then of its entities, the prominent ones first.

    A relation's prominence is the sum of its ends' degrees; ties go to the smaller numbers.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4). *Where we differ:* there an edge's two nodes are
    described before it; we put relations first, since nodes share them.

    Returns:
        Text numbers of each community, each once.
    """
    degree = relations.degree
    by_edge = sorted(
        range(len(relations.ends)), key=lambda edge: (-sum(degree[node] for node in relations.ends[edge]), edge)
    )
    found: list[dict[int, None]] = [{} for _ in hierarchy.members]
    for own in hierarchy.by_level:
        for edge in by_edge:
            head, tail = relations.ends[edge]
            community = own.get(head)
            if community is not None and community == own.get(tail):
                found[community].update(dict.fromkeys(material.edges[relations.numbers[edge]]))
    for texts, members in zip(found, hierarchy.members, strict=True):
        for node in sorted(members, key=lambda node: (-degree[node], node)):
            texts.update(dict.fromkeys(material.nodes[node]))
    return [list(texts) for texts in found]


def parent_context(
    elements: Sequence[Sequence[int]], summaries: Sequence[Sequence[int]], num_tokens: Sequence[int], *, limit: int
) -> list[int]:
    """Replace the longest of the children's texts by their summaries, until all fit together.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).

    Args:
        elements: Text numbers of each child, the most prominent child first.
        summaries: Text numbers of each child's summary.
        num_tokens: Of every text.
        limit: Most tokens; where even the summaries are too long, the texts behind are for the caller to cut.

    Returns:
        Text numbers, each once, child by child.

    Example:
        >>> parent_context([[0, 1], [2, 3]], [[1], [3]], [4, 2, 6, 1], limit=8)
        [0, 1, 3]
    """
    lengths = [sum(num_tokens[number] for number in texts) for texts in elements]
    chosen = list(elements)
    used = Counter(number for texts in elements for number in texts)
    total = sum(num_tokens[number] for number in used)
    for child in sorted(range(len(elements)), key=lambda child: (-lengths[child], child)):
        if total <= limit:
            break
        for number in elements[child]:
            used[number] -= 1
            total -= num_tokens[number] * (used[number] == 0)
        for number in summaries[child]:
            total += num_tokens[number] * (used[number] == 0)
            used[number] += 1
        chosen[child] = summaries[child]
    return list(dict.fromkeys(number for texts in chosen for number in texts))
