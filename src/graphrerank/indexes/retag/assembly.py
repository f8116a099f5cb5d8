"""Putting a ReTAG index together from what its stages hold."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.indexes.retag.communities import Communities, Rows
from graphrerank.indexes.retag.entity_graph import EntityGraph, names_in
from graphrerank.indexes.retag.index import Sentences, Subgraph
from graphrerank.indexes.retag.language import join_texts
from graphrerank.indexes.retag.leiden import Hierarchy
from graphrerank.indexes.retag.summary_material import Material, Relations

TITLE_NAMES = 3  # entities of a community's title


@dataclass(frozen=True)
class Summarised:
    """The communities of one graph with their summaries.

    Attributes:
        relations: The graph's related pairs.
        hierarchy: Its communities.
        material: What was summed up, and behind it what a language model wrote.
        summaries: Text numbers of each community's summary.
        vectors: ``[n, d]`` of the summaries.
    """

    relations: Relations
    hierarchy: Hierarchy
    material: Material
    summaries: Sequence[Sequence[int]]
    vectors: Tensor


def subgraph(
    graph: EntityGraph, entities: Tensor | None = None, related: Tensor | None = None
) -> tuple[Subgraph, Relations]:
    """Take the entities and relations of a topic; all of them without one.

    Args:
        graph: Of the corpus.
        entities: ``[E]`` bool, the topic's.
        related: ``[m]`` bool, the topic's; both ends are among its entities.
    """
    nodes, numbers = torch.arange(len(graph.names)), torch.arange(len(graph.edges))
    if entities is not None and related is not None:
        nodes, numbers = nodes[entities], numbers[related]
    edges = graph.edges[numbers]
    relations = Relations.of([(head, tail) for head, tail in edges.tolist()], numbers.tolist())
    return Subgraph(nodes, edges, graph.weight[numbers]), relations


def assemble(
    graph: EntityGraph, parts: Sequence[Summarised], num_tokens: Sequence[Sequence[int]], *, picked: bool
) -> tuple[Communities, Sentences]:
    """Number the communities of all graphs, and gather the sentences that they quote.

    Args:
        graph: Of the corpus.
        parts: Of the general graph, then of each topic's.
        num_tokens: Of each summary of each part.
        picked: Whether summaries consist of the corpus's sentences, which are the first texts of every material.
    """
    used = sorted({number for part in parts for numbers in part.summaries for number in numbers}) if picked else []
    place = {number: i for i, number in enumerate(used)}
    names = {} if picked else {entity: number for number, entity in enumerate(graph.normalized)}
    named = graph.named.tolist()
    titles: list[str] = []
    texts: list[str] = []
    sentences, sources, mentioned, members, parents = [], [], [], [], []
    for part in parts:
        begin = len(texts)
        parents += [parent if parent < 0 else begin + parent for parent in part.hierarchy.parent]
        members += list(part.hierarchy.members)
        degree = part.relations.degree
        for own, numbers in zip(part.hierarchy.members, part.summaries, strict=True):
            best = sorted(own, key=lambda node: (-degree[node], node))[:TITLE_NAMES]
            titles.append(", ".join(graph.names[node] for node in best))
            texts.append(join_texts(part.material, numbers))
            sources.append(sorted({passage for number in numbers for passage in part.material.sources[number]}))
            sentences.append([place[number] for number in numbers] if picked else [])
            told = {entity for number in numbers for entity in named[number]} if picked else names_in(texts[-1], names)
            mentioned.append(sorted(told))
    every = [count for counts in num_tokens for count in counts]
    sizes = torch.tensor([len(part.hierarchy) for part in parts])
    communities = Communities(
        graph=torch.repeat_interleave(torch.arange(len(parts)), sizes),
        level=torch.tensor([level for part in parts for level in part.hierarchy.level], dtype=torch.int64),
        parent=torch.tensor(parents, dtype=torch.int64),
        members=Rows.of(members),
        titles=titles,
        texts=texts,
        num_tokens=torch.tensor(every, dtype=torch.int64),
        vectors=torch.cat([part.vectors for part in parts]),
        sentences=Rows.of(sentences),
        sources=Rows.of(sources),
        named=Rows.of(mentioned),
    )
    quoted = Sentences(
        texts=[graph.sentences[number] for number in used],
        passage=graph.passage[torch.tensor(used, dtype=torch.int64)],
        num_tokens=torch.tensor([parts[0].material.num_tokens[number] for number in used], dtype=torch.int64),
    )
    return communities, quoted
