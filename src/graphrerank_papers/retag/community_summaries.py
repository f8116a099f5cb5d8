"""Summaries of the communities of one graph, from the finest level up."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from graphrerank_papers.retag.leiden import Hierarchy
from graphrerank_papers.retag.summary_material import Material, Relations, element_texts, parent_context


class Summarizer(Protocol):
    """Anything that summarises texts."""

    def summarise(self, contexts: Sequence[Sequence[int]], material: Material) -> list[list[int]]:
        """Summarise each of ``n`` lists of texts by some of them, or by a text that is added to the material."""


def summarise_communities(
    hierarchy: Hierarchy,
    relations: Relations,
    material: Material,
    summarizer: Summarizer,
    *,
    context_tokens: int,
    known: Mapping[int, Sequence[int]] | None = None,
) -> list[list[int]]:
    """Summarise every community, from the finest level up, except those with a ``known`` summary.

    The context of a summary is the community's texts, the prominent first, truncated to ``context_tokens``. If they are
    too long and the community was split, summaries of its children first replace the longest of the children's texts.

    Source: GraphRAG ("From Local to Global", 2024, section 3.1.4).

    Returns:
        Text indices of each community's summary.
    """
    elements = element_texts(hierarchy, relations, material)
    prominence = [sum(relations.degree[node] for node in members) for members in hierarchy.members]
    children_of = hierarchy.children
    summaries: dict[int, Sequence[int]] = dict(known or {})
    for level in reversed(range(max(hierarchy.level, default=-1) + 1)):
        missing = [
            community
            for community in range(len(hierarchy))
            if hierarchy.level[community] == level and community not in summaries
        ]
        contexts = []
        for community in missing:
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
        summaries.update(zip(missing, summarizer.summarise(contexts, material), strict=True))
    return [list(summaries[community]) for community in range(len(hierarchy))]
