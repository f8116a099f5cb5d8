"""Summaries of the communities of one graph, from the finest level up."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from graphrerank.indexes.retag.leiden import Hierarchy
from graphrerank.indexes.retag.summary_material import Material, Relations, element_texts, parent_context


class Summarizer(Protocol):
    """Anything that sums texts up."""

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        """Sum up each of ``n`` lists of texts: with some of them, or with a text that is added to the material."""


def summarise_communities(
    hierarchy: Hierarchy,
    relations: Relations,
    material: Material,
    summarizer: Summarizer,
    *,
    context_tokens: int,
    known: Mapping[int, Sequence[int]] | None = None,
) -> list[list[int]]:
    """Sum up every community.

    What there is to say of a community's relations and entities is summed up if it is at most ``context_tokens`` long,
    or if the community was not split; then as far as it fits, the prominent first. Otherwise the longest of what its
    children hold is replaced by their summaries until the rest fits.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).

    Args:
        hierarchy: The communities of a graph.
        relations: Its related pairs.
        material: What to sum up.
        summarizer: Who does it, a level at once.
        context_tokens: Most tokens that a summary is made from.
        known: Summaries that are there already, by community.

    Returns:
        Text numbers of each community's summary.
    """
    elements = element_texts(hierarchy, relations, material)
    prominence = [sum(relations.degree[node] for node in members) for members in hierarchy.members]
    children = hierarchy.children
    made: dict[int, Sequence[int]] = dict(known or {})
    for level in reversed(range(max(hierarchy.level, default=-1) + 1)):
        waiting = [own for own in range(len(hierarchy)) if hierarchy.level[own] == level and own not in made]
        contexts = []
        for own in waiting:
            texts, below = elements[own], children[own]
            if below and sum(material.num_tokens[number] for number in texts) > context_tokens:
                below = sorted(below, key=lambda child: (-prominence[child], child))
                texts = parent_context(
                    [elements[child] for child in below],
                    [made[child] for child in below],
                    material.num_tokens,
                    limit=context_tokens,
                )
            contexts.append(material.first(texts, context_tokens))
        made.update(zip(waiting, summarizer.summarise(contexts, material), strict=True))
    return [list(made[own]) for own in range(len(hierarchy))]
