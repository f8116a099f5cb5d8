"""Build and update the index of ReTAG: topics, and the communities of each graph with their summaries."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.core.queries import IndexEncoder
from graphrerank.knowledge.passage_knowledge import KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.text import Tokenizer, count_tokens
from graphrerank.utils.caching import hash_texts
from graphrerank.utils.checks import UserError
from graphrerank_papers.indexing import Stages
from graphrerank_papers.retag.entity_graph import (
    EntityGraph,
    Hierarchy,
    build_entity_graph,
    hierarchical_leiden,
)
from graphrerank_papers.retag.growth import graft
from graphrerank_papers.retag.index import (
    Communities,
    ReTAGIndex,
    ReTAGReport,
    ReTAGSettings,
    Rows,
    Sentences,
    Subgraph,
    Topics,
)
from graphrerank_papers.retag.steps import (
    Corpus,
    ExtractiveSteps,
    GenerativeSteps,
    Material,
    ReTAGPrompts,
    covering_threshold,
)

__getattr__ = moved_names(__name__)

Steps = ExtractiveSteps | GenerativeSteps


@dataclass(frozen=True)
class GraphSummaries:
    """Summaries of the ``n`` communities of a graph.

    Attributes:
        texts: Texts of the summaries.
        sentences: Sentences of the corpus that each summary quotes. Empty for summaries of a language model.
        sources: Passages on which each summary is based, ascending.
        vectors: Vectors of the summaries ``[n, d]``.
        skipped: Number of summaries for which the language model gave no usable answer.
    """

    texts: Sequence[str]
    sentences: Sequence[Sequence[int]]
    sources: Sequence[Sequence[int]]
    vectors: Tensor
    skipped: int


class SummarisedGraph(NamedTuple):
    """Graph with its communities and their summaries.

    Attributes:
        graph: General graph, or the graph of a topic.
        hierarchy: Communities of the graph.
        summaries: Summaries of the communities.
    """

    graph: Subgraph
    hierarchy: Hierarchy
    summaries: GraphSummaries


@dataclass(frozen=True, eq=False)
class ReTAGIndexBuilder:
    """Build an index in stages. Completed stages are read from the folder, so an interrupted build can be resumed.

    Source: "ReTAG", 2025, which extends GraphRAG ("From Local to Global", 2024). *Differences from the paper:* entities
    are extracted once, not separately for each topic.

    Attributes:
        folder: Folder of the stages (:class:`~graphrerank_papers.indexing.Stages`).
        tokenizer: Tokenizer that measures the lengths of texts.
        encoder: Encoder of sentences and summaries. Queries must use the same encoder.
        extractor: Extractor of entities and relations. Wrap it in a
            :class:`~graphrerank.knowledge.knowledge_cache.KnowledgeCache` to reuse its results.
        model: Chat model that finds the topics, decides what is relevant to them, and writes the summaries. Wrap it in
            an :class:`~graphrerank.language_models.answer_cache.AnswerCache` so that an interrupted build repeats no
            request. If None, topics are clusters of entities, and summaries quote sentences of the corpus.
        prompts: Prompts of the chat model.
    """

    folder: str | Path
    _: KW_ONLY
    tokenizer: Tokenizer
    encoder: IndexEncoder
    extractor: KnowledgeExtractor
    model: ChatModel | None = None
    prompts: ReTAGPrompts = field(default_factory=ReTAGPrompts)

    @property
    def _stages(self) -> Stages:
        return Stages(self.folder)

    def build(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings | None = None) -> ReTAGIndex:
        """Build the index of a corpus, or read it from the folder.

        Args:
            ids: Unique ids of the passages.
            passages: Texts of the passages.
            settings: Settings of the index. If None, the defaults of :class:`ReTAGSettings` are used.

        Returns:
            Complete index. Without related entities, it has no communities.

        Raises:
            ValueError: If there is not one unique id per passage, or the encoder returns invalid vectors.
        """
        settings = settings or ReTAGSettings()
        steps = self._steps(settings)
        graph_key, corpus = self._corpus(ids, passages, settings, steps)
        models = (steps.fingerprint, self.encoder.fingerprint, self.tokenizer.fingerprint)
        depends = (settings.num_topics, settings.coverage, settings.num_terms, settings.seed, settings.context_tokens)
        key = self._stages.key("topics", graph_key, settings.description_tokens, *depends, *models)
        topics, entities, relations, skipped = self._stages.get(
            key, tuple[Topics, Tensor, Tensor, int], lambda: _find_topics(corpus, steps)
        )
        divided = (settings.resolution, settings.max_community, settings.min_component, settings.seed)
        limits = (settings.context_tokens, settings.summary_tokens, settings.centrality, settings.description_tokens)
        graphs: list[SummarisedGraph] = []
        for index, graph in enumerate(_subgraphs(corpus.graph, entities, relations)):
            graph_depends = (key if index else graph_key, index)
            hierarchy_key = self._stages.key("communities", *graph_depends, *divided)
            find = partial(hierarchical_leiden, graph.edges, graph.weight, settings)
            hierarchy = self._stages.get(hierarchy_key, Hierarchy, find)
            summary_key = self._stages.key("community_summaries", hierarchy_key, *limits, *models)
            summarise = partial(_summarise, graph, hierarchy, corpus, steps)
            summaries = self._stages.get(summary_key, GraphSummaries, summarise)
            graphs.append(SummarisedGraph(graph, hierarchy, summaries))
        return self._assemble(ids, passages, corpus, topics, graphs, steps, skipped)

    def update(self, index: ReTAGIndex, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Add passages to an index. Its topics do not change, and its communities grow with their graphs.

        New entities belong to the topics that they are relevant to, and join communities by
        :func:`~graphrerank_papers.retag.growth.graft`. All communities are summarised again. If the model is wrapped in
        an :class:`~graphrerank.language_models.answer_cache.AnswerCache`, summaries of unchanged texts need no request.

        Source: this project, for the first open question of ReTAG.

        Args:
            index: Index of the first passages, built with the same tokenizer, encoder, extractor and model.
            ids: Unique ids of all passages. They begin with those of the index.
            passages: Texts of all passages. They begin with those of the index.

        Returns:
            New index of all passages, with the settings of ``index``.

        Raises:
            ValueError: If the passages do not begin with those of the index, or as in :meth:`build`.
        """
        settings, indexed_ids = index.settings, list(index.passage_ids)
        if list(ids[: len(indexed_ids)]) != indexed_ids:
            raise UserError(f"`ids` must begin with the {len(indexed_ids)} ids of the index, got other ids")
        steps = self._steps(settings)
        _, corpus = self._corpus(ids, passages, settings, steps)
        names = list(index.entities)
        if list(corpus.graph.names[: len(names)]) != names:
            raise UserError(f"`passages` must begin with those of the index, but its {len(names)} entities differ")
        entities = steps.relevant_entities(corpus, index.topics)
        for topic, subgraph in enumerate(index.graphs[1:]):
            entities[subgraph.nodes, topic] = True
        relations = steps.relevant_relations(corpus, index.topics, entities)
        for topic, subgraph in enumerate(index.graphs[1:]):
            relations[corpus.graph.positions(subgraph.edges), topic] = True
        skipped = steps.num_skipped
        graphs: list[SummarisedGraph] = []
        for number, graph in enumerate(_subgraphs(corpus.graph, entities, relations)):
            hierarchy = graft(_hierarchy(index.communities, number), graph.edges, graph.weight, settings)
            graphs.append(SummarisedGraph(graph, hierarchy, _summarise(graph, hierarchy, corpus, steps)))
        return self._assemble(ids, passages, corpus, index.topics, graphs, steps, skipped)

    def _steps(self, settings: ReTAGSettings) -> Steps:
        if self.model is None:
            return ExtractiveSteps(self.tokenizer, settings)
        encode = partial(self._stages.encode, self.encoder)
        return GenerativeSteps(self.model, self.prompts, self.tokenizer, encode, settings)

    def _corpus(
        self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings, steps: Steps
    ) -> tuple[str, Corpus]:
        """Return the key of the entity graph, and the corpus."""
        num_unique = len(set(ids))
        if not len(passages) == len(ids) == num_unique:
            raise UserError(
                f"`ids` must be {len(passages)} unique ids, got {len(ids)} ids of which {num_unique} are unique"
            )
        stages, knowledge = self._stages, cache(lambda: self.extractor.extract(passages))
        graph_key = stages.key("entity_graph", hash_texts(passages).hex(), self.extractor.fingerprint)
        graph = stages.get(graph_key, EntityGraph, lambda: build_entity_graph(knowledge(), passages))
        models = (steps.fingerprint, self.tokenizer.fingerprint)
        key = stages.key("material", graph_key, *models, settings.description_tokens)
        material = stages.get(key, Material, lambda: steps.material(knowledge, graph))
        vectors = stages.encode(self.encoder, graph.sentences)
        entity_vectors = graph.entity_vectors(vectors)
        nonzero = entity_vectors[entity_vectors.abs().sum(dim=1) > 0]
        centre = nonzero.mean(dim=0) if len(nonzero) else nonzero.new_zeros(nonzero.shape[1])
        return graph_key, Corpus(graph, material, vectors, entity_vectors, centre)

    def _assemble(
        self,
        ids: Sequence[str],
        passages: Sequence[str],
        corpus: Corpus,
        topics: Topics,
        graphs: Sequence[SummarisedGraph],
        steps: Steps,
        skipped: int,
    ) -> ReTAGIndex:
        """Number the communities of all graphs, general graph first, and collect the quoted sentences."""
        graph = corpus.graph
        all_summaries = [each.summaries for each in graphs]
        quoted_by_community = [row for summaries in all_summaries for row in summaries.sentences]
        quoted = sorted({sentence for row in quoted_by_community for sentence in row})
        sentence_index = {sentence: index for index, sentence in enumerate(quoted)}
        graph_numbers, levels, parents = list[int](), list[int](), list[int]()
        members: list[Sequence[int]] = []
        for number, each in enumerate(graphs):
            first = len(members)  # number of the first community of the graph
            hierarchy = each.hierarchy
            for level, parent, entities in zip(hierarchy.level, hierarchy.parent, hierarchy.members, strict=True):
                graph_numbers.append(number)
                levels.append(level)
                parents.append(parent if parent < 0 else first + parent)
                members.append(entities)
        texts = [text for summaries in all_summaries for text in summaries.texts]
        communities = Communities(
            graph=torch.tensor(graph_numbers, dtype=torch.int64),
            level=torch.tensor(levels, dtype=torch.int64),
            parent=torch.tensor(parents, dtype=torch.int64),
            members=Rows.of(members),
            texts=texts,
            num_tokens=torch.tensor(count_tokens(self.tokenizer, texts), dtype=torch.int64),
            vectors=torch.cat([summaries.vectors for summaries in all_summaries]),
            sentences=Rows.of([sentence_index[sentence] for sentence in row] for row in quoted_by_community),
            sources=Rows.of(sources for summaries in all_summaries for sources in summaries.sources),
        )
        lengths = [corpus.material.num_tokens[sentence] for sentence in quoted]
        quotations = Sentences(
            texts=[graph.sentences[sentence] for sentence in quoted],
            passage=graph.passage[torch.tensor(quoted, dtype=torch.int64)],
            num_tokens=torch.tensor(lengths, dtype=torch.int64),
        )
        report = ReTAGReport(
            passages=len(passages),
            corpus_tokens=sum(count_tokens(self.tokenizer, passages)),
            entities=len(graph.names),
            relations=len(graph.edges),
            unrelated=len(graph.names) - sum(len(communities.members[c]) for c in communities.at_level(0, 0).tolist()),
            skipped=skipped + sum(summaries.skipped for summaries in all_summaries),
        )
        subgraphs = [each.graph for each in graphs]
        return ReTAGIndex(steps.settings, list(ids), graph.names, topics, subgraphs, communities, quotations, report)


def _hierarchy(communities: Communities, graph: int) -> Hierarchy:
    """Return the communities of one graph, numbered from 0."""
    rows = (communities.graph == graph).nonzero().flatten().tolist()
    return Hierarchy(
        level=communities.level[rows].tolist(),
        parent=[parent if parent < 0 else parent - rows[0] for parent in communities.parent[rows].tolist()],
        members=[communities.members[row].tolist() for row in rows],
    )


def _find_topics(corpus: Corpus, steps: Steps) -> tuple[Topics, Tensor, Tensor, int]:
    """Return the topics, their entities ``[E, T]`` and relations ``[m, T]``, and the number of skipped answers."""
    topics, coverage = steps.find_topics(corpus), steps.settings.coverage
    similarity = topics.similarity(corpus.sentence_vectors)
    entity_similarity = corpus.graph.entity_scores(similarity)[corpus.entity_vectors.abs().sum(dim=1) > 0]
    topics = replace(
        topics,
        entity_threshold=covering_threshold(entity_similarity, coverage=coverage),
        threshold=covering_threshold(similarity, coverage=coverage),
    )
    entities = steps.relevant_entities(corpus, topics)
    return topics, entities, steps.relevant_relations(corpus, topics, entities), steps.num_skipped


def _subgraphs(graph: EntityGraph, entities: Tensor, relations: Tensor) -> list[Subgraph]:
    """Return the general graph, and the graph of each topic from its entities ``[E, T]`` and relations ``[m, T]``."""
    general = Subgraph(torch.arange(len(graph.names)), graph.edges, graph.weight)
    return [general] + [
        Subgraph(nodes.nonzero().flatten(), graph.edges[related], graph.weight[related])
        for nodes, related in zip(entities.T, relations.T, strict=True)
    ]


def _summarise(graph: Subgraph, hierarchy: Hierarchy, corpus: Corpus, steps: Steps) -> GraphSummaries:
    before, material = steps.num_skipped, corpus.material.copy()
    summaries = summarise_communities(
        hierarchy,
        graph.edges.tolist(),
        [material.edges[position] for position in corpus.graph.positions(graph.edges).tolist()],
        material,
        lambda contexts: steps.summarise(contexts, material, corpus),
        context_tokens=steps.settings.context_tokens,
    )
    vectors = torch.zeros(len(summaries), corpus.sentence_vectors.shape[1])
    if filled := [row for row, summary in enumerate(summaries) if summary]:
        vectors[filled] = steps.vectors([summaries[row] for row in filled], material, corpus)
    return GraphSummaries(
        texts=[material.join(summary) for summary in summaries],
        sentences=[summary if steps.is_extractive else [] for summary in summaries],
        sources=[sorted({passage for text in summary for passage in material.sources[text]}) for summary in summaries],
        vectors=vectors,
        skipped=steps.num_skipped - before,
    )


def summarise_communities(
    hierarchy: Hierarchy,
    ends: Sequence[Sequence[int]],
    edge_texts: Sequence[Sequence[int]],
    material: Material,
    summarise: Callable[[Sequence[Sequence[int]]], list[list[int]]],
    *,
    context_tokens: int,
) -> list[list[int]]:
    """Summarise all communities, finest level first.

    The context of a summary consists of the texts about the community's relations, followed by those about its
    entities. Relations and entities with the highest degrees come first. If the context exceeds ``context_tokens`` and
    the community has children, summaries of the children replace their texts (:func:`parent_context`). The context is
    then truncated.

    Source: GraphRAG ("From Local to Global", 2024), section 3.1.4. *Differences from the paper:* GraphRAG describes the
    two nodes of an edge before the edge. Here, all relations come first, because relations share nodes.

    Args:
        hierarchy: Communities of a graph.
        ends: Pairs of related entities.
        edge_texts: Indices of the texts about each pair.
        material: Texts about entities and relations.
        summarise: Function that summarises lists of text indices, and returns the text indices of each summary. It may
            add texts to ``material``.
        context_tokens: Maximum number of tokens of a context.

    Returns:
        Text indices of each community's summary.
    """
    degree = Counter(node for pair in ends for node in pair)
    ranked_edges = sorted(range(len(ends)), key=lambda edge: (-sum(degree[node] for node in ends[edge]), edge))
    prominence = [sum(degree[node] for node in members) for members in hierarchy.members]
    elements: list[dict[int, None]] = [{} for _ in hierarchy.members]
    children_of: dict[int, list[int]] = defaultdict(list)
    for child in sorted(range(len(hierarchy)), key=lambda child: (-prominence[child], child)):
        children_of[hierarchy.parent[child]].append(child)
    summaries: dict[int, list[int]] = {}
    for level in reversed(range(max(hierarchy.level, default=-1) + 1)):
        level_communities = [community for community in range(len(hierarchy)) if hierarchy.level[community] == level]
        community_of = {node: community for community in level_communities for node in hierarchy.members[community]}
        for edge in ranked_edges:
            head, tail = (community_of.get(node) for node in ends[edge])
            if head is not None and head == tail:
                elements[head].update(dict.fromkeys(edge_texts[edge]))
        contexts = []
        for community in level_communities:
            for node in sorted(hierarchy.members[community], key=lambda node: (-degree[node], node)):
                elements[community].update(dict.fromkeys(material.nodes[node]))
            texts = list(elements[community])
            children = children_of[community]
            if children and sum(material.num_tokens[text] for text in texts) > context_tokens:
                below = [list(elements[child]) for child in children], [summaries[child] for child in children]
                texts = parent_context(*below, material.num_tokens, limit=context_tokens)
            contexts.append(material.first(texts, context_tokens))
        summaries.update(zip(level_communities, summarise(contexts), strict=True))
    return [summaries[community] for community in range(len(hierarchy))]


def parent_context(
    elements: Sequence[Sequence[int]], summaries: Sequence[Sequence[int]], num_tokens: Sequence[int], *, limit: int
) -> list[int]:
    """Replace the texts of child communities by their summaries until they fit, longest texts first.

    Source: GraphRAG ("From Local to Global", 2024), section 3.1.4.

    Args:
        elements: Text indices of each child, most prominent child first.
        summaries: Text indices of each child's summary.
        num_tokens: Number of tokens of each text.
        limit: Maximum number of tokens.

    Returns:
        Unique text indices. They exceed ``limit`` only if all summaries together do.

    Example:
        >>> parent_context([[0, 1], [2]], [[3], [4]], [5, 5, 2, 1, 1], limit=4)
        [3, 2]
    """
    lengths = [sum(num_tokens[text] for text in texts) for texts in elements]
    chosen = list(elements)
    for child in sorted(range(len(elements)), key=lambda child: (-lengths[child], child)):
        if sum(num_tokens[text] for text in set(chain(*chosen))) <= limit:
            break
        chosen[child] = summaries[child]
    return list(dict.fromkeys(chain(*chosen)))
