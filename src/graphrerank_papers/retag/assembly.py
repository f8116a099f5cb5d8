"""Assembling a ReTAG index from the results of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank_papers.retag.communities import Communities, Rows
from graphrerank_papers.retag.entity_graph import EntityGraph, names_in
from graphrerank_papers.retag.index import Sentences, Subgraph
from graphrerank_papers.retag.language_steps import join_texts
from graphrerank_papers.retag.leiden import Hierarchy
from graphrerank_papers.retag.summary_material import Material, Relations

TITLE_NAMES = 3  # entities in the title of a community


@dataclass(frozen=True)
class SummarisedGraph:
    """The communities of one graph with their summaries."""

    relations: Relations  # the graph's related pairs
    hierarchy: Hierarchy  # its communities
    material: Material  # texts that were summarised, followed by those that a language model wrote
    summaries: Sequence[Sequence[int]]  # text indices of each community's summary
    vectors: Tensor  # `[n, d]` of the summaries


def subgraph(
    graph: EntityGraph, entities: Tensor | None = None, related: Tensor | None = None
) -> tuple[Subgraph, Relations]:
    """Select the entities ``[E]`` bool and relations ``[m]`` bool of a topic; all of them by default."""
    nodes, positions = torch.arange(len(graph.names)), torch.arange(len(graph.edges))
    if entities is not None and related is not None:
        nodes, positions = nodes[entities], positions[related]
    edges = graph.edges[positions]
    relations = Relations.of([(head, tail) for head, tail in edges.tolist()], positions.tolist())
    return Subgraph(nodes, edges, graph.weight[positions]), relations


def assemble(
    graph: EntityGraph,
    summarised: Sequence[SummarisedGraph],
    num_tokens: Sequence[Sequence[int]],
    *,
    is_extractive: bool,
) -> tuple[Communities, Sentences]:
    """Number the communities of all graphs, the general one first, and collect the sentences that they quote.

    ``num_tokens`` are the lengths of the summaries of each graph. Extractive summaries consist of the corpus's
    sentences, which come first in every material.
    """
    quoted = (
        sorted({text for entry in summarised for summary in entry.summaries for text in summary})
        if is_extractive
        else []
    )
    sentence_index = {text: index for index, text in enumerate(quoted)}
    entity_index = {} if is_extractive else {name: entity for entity, name in enumerate(graph.normalized)}
    sentence_entities = graph.named.tolist()
    titles: list[str] = []
    texts: list[str] = []
    sentences, sources, mentioned, members, parents = [], [], [], [], []
    for entry in summarised:
        first = len(texts)
        parents += [parent if parent < 0 else first + parent for parent in entry.hierarchy.parent]
        members += list(entry.hierarchy.members)
        degree = entry.relations.degree
        for entities, summary in zip(entry.hierarchy.members, entry.summaries, strict=True):
            prominent = sorted(entities, key=lambda entity: (-degree[entity], entity))[:TITLE_NAMES]
            titles.append(", ".join(graph.names[entity] for entity in prominent))
            texts.append(join_texts(entry.material, summary))
            sources.append(sorted({passage for text in summary for passage in entry.material.sources[text]}))
            if is_extractive:
                sentences.append([sentence_index[text] for text in summary])
                mentioned.append(sorted({entity for text in summary for entity in sentence_entities[text]}))
            else:
                sentences.append([])
                mentioned.append(sorted(names_in(texts[-1], entity_index)))
    sizes = torch.tensor([len(entry.hierarchy) for entry in summarised])
    communities = Communities(
        graph=torch.repeat_interleave(torch.arange(len(summarised)), sizes),
        level=torch.tensor([level for entry in summarised for level in entry.hierarchy.level], dtype=torch.int64),
        parent=torch.tensor(parents, dtype=torch.int64),
        members=Rows.of(members),
        titles=titles,
        texts=texts,
        num_tokens=torch.tensor([count for counts in num_tokens for count in counts], dtype=torch.int64),
        vectors=torch.cat([entry.vectors for entry in summarised]),
        sentences=Rows.of(sentences),
        sources=Rows.of(sources),
        named=Rows.of(mentioned),
    )
    quotations = Sentences(
        texts=[graph.sentences[sentence] for sentence in quoted],
        passage=graph.passage[torch.tensor(quoted, dtype=torch.int64)],
        num_tokens=torch.tensor(
            [summarised[0].material.num_tokens[sentence] for sentence in quoted], dtype=torch.int64
        ),
    )
    return communities, quotations
