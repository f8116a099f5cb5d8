"""Building ReTAG's index, and adding passages to it: topics, communities of every graph, and their summaries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.graphs.queries import IndexEncoder
from graphrerank.knowledge.passage_knowledge import Knowledge, KnowledgeExtractor
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.text import Tokenizer, count_tokens
from graphrerank_papers.indexing import Stages
from graphrerank_papers.retag.communities import Hierarchy, graft, hierarchical_leiden
from graphrerank_papers.retag.entity_graph import EntityGraph, build_entity_graph, names_in
from graphrerank_papers.retag.index import (
    Communities,
    ReTAGIndex,
    ReTAGReport,
    ReTAGSettings,
    Rows,
    Sentences,
    Subgraph,
)
from graphrerank_papers.retag.steps import Corpus, ExtractiveSteps, GenerativeSteps, LanguageSteps, ReTAGPrompts
from graphrerank_papers.retag.summaries import Material, Relations, join_texts, summarise_communities
from graphrerank_papers.retag.topics import Topics, covering_threshold

TITLE_NAMES = 3  # entities in the title of a community


class ReTAGIndexBuilder:
    """Builds an index stage by stage, reading finished stages from the folder.

    Source: "ReTAG", 2025, over GraphRAG ("From Local to Global", 2024). *Where we differ:* entities are extracted once,
    not again for each topic. An interrupted build resumes (:class:`Stages`).

    Without ``model``, topics are clusters of entities, and summaries consist of sentences of the corpus. A language
    model finds the topics, decides what is relevant to them and writes the summaries.

    Args:
        encoder: Encoder of sentences; queries need the same one.
        extractor: Extractor of entities and relations, best wrapped in a ``KnowledgeCache``.
        model: Language model, best wrapped in an ``AnswerCache``; None for extractive topics and summaries.
        tries: Number of attempts to get a usable answer from it.
        prompts: Its prompts; None for those that ship.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor,
        model: ChatModel | None = None,
        tries: int = 3,
        prompts: ReTAGPrompts | None = None,
    ) -> None:
        self._stages = Stages(folder)
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._extractor = extractor
        self._model = model
        self._tries = tries
        self._prompts = prompts

    def build(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings | None = None) -> ReTAGIndex:
        """Build the index of a corpus, or read it.

        A corpus without passages, entities or relations has an index without communities.

        Raises:
            ValueError: If there is not one unique id per passage, a model's output does not fit, or a file of the
                folder is damaged.
        """
        return self._stages_of(ids, passages, settings or ReTAGSettings()).build()

    def update(self, index: ReTAGIndex, ids: Sequence[str], passages: Sequence[str]) -> ReTAGIndex:
        """Add passages to an index: topics stay, and communities grow with their graphs.

        A new entity belongs to the topics that it is relevant to, and joins the community to which it is most related.
        A community that outgrows ``max_community`` is split; new entities related to no known one form new
        communities (:func:`graft`). All communities are summarised again; of a language model in an ``AnswerCache``,
        summaries of unchanged texts are read from it.

        Source: ours, for the first of ReTAG's open questions.

        Raises:
            ValueError: If the passages do not begin with the index's; or as :meth:`build`.
        """
        known = list(index.passage_ids)
        if list(ids[: len(known)]) != known:
            raise ValueError(f"`ids` must begin with the {len(known)} ids of the index, got others")
        return self._stages_of(ids, passages, index.settings).build(index)

    def _stages_of(self, ids: Sequence[str], passages: Sequence[str], settings: ReTAGSettings) -> "_Build":
        num_unique = len(set(ids))
        if not len(passages) == len(ids) == num_unique:
            raise ValueError(f"`ids` must be {len(passages)} unique ids, got {len(ids)}, {num_unique} of them unique")
        stages, encoder, tokenizer = self._stages, self._encoder, self._tokenizer
        steps: LanguageSteps = ExtractiveSteps(tokenizer, settings)
        if self._model is not None:
            steps = GenerativeSteps(
                self._model,
                tokenizer,
                lambda texts: stages.encode(encoder, texts),
                settings,
                tries=self._tries,
                prompts=self._prompts,
            )
        return _Build(stages, tokenizer, encoder, self._extractor, steps, ids, passages, settings)


@dataclass
class _Build:
    """The stages of one index."""

    stages: Stages  # storage
    tokenizer: Tokenizer  # tokenizer that measures texts
    encoder: IndexEncoder  # encoder of sentences
    extractor: KnowledgeExtractor  # extractor of entities and relations
    steps: LanguageSteps
    ids: Sequence[str]  # `P` ids of the passages
    passages: Sequence[str]  # `P` texts
    settings: ReTAGSettings  # settings of the index

    def __post_init__(self) -> None:
        self._graph_key = self.stages.key("entity_graph", hash_texts(self.passages).hex(), self.extractor.fingerprint)
        self._num_skipped = 0

    def build(self, previous: ReTAGIndex | None = None) -> ReTAGIndex:
        """Compute the missing stages and assemble the index, with topics and communities of a previous one if given."""
        if previous is None:
            key, topics, entities, relations = self._topics()
        else:
            key, topics, entities, relations = "", previous.topics, *self._grown_topics(previous)
        graphs, summarised = [], []
        for graph_index, selected in enumerate([(None, None), *zip(entities.T, relations.T, strict=True)]):
            graph, related = _subgraph(self._graph, *selected)
            graphs.append(graph)
            if previous is None:
                summarised.append(self._summaries(key if graph_index else self._graph_key, graph_index, graph, related))
            else:
                hierarchy = graft(_hierarchy_of(previous, graph_index), graph.edges, graph.weight, self.settings)
                summarised.append(self._summarise(related, hierarchy))
        if previous is not None:
            self._num_skipped = self.steps.num_skipped
        return self._assemble(topics, graphs, summarised)

    def _grown_topics(self, previous: ReTAGIndex) -> tuple[Tensor, Tensor]:
        """Return the entities ``[E, T]`` and relations ``[m, T]`` of each topic: those of before, and relevant ones."""
        graph, known = self._graph, list(previous.entities)
        if list(graph.names[: len(known)]) != known:
            raise ValueError(
                f"`passages` must begin with those of the index, got others: its {len(known)} entities differ"
            )
        entities = self.steps.relevant_entities(self._corpus, previous.topics)
        size = len(graph.names)
        key = graph.edges[:, 0] * size + graph.edges[:, 1]  # ascending, as the edges are
        for topic, subgraph in enumerate(previous.graphs[1:]):
            entities[subgraph.nodes, topic] = True
        relations = self.steps.relevant_relations(self._corpus, previous.topics, entities)
        for topic, subgraph in enumerate(previous.graphs[1:]):
            relations[torch.searchsorted(key, subgraph.edges[:, 0] * size + subgraph.edges[:, 1]), topic] = True
        return entities, relations

    @cached_property
    def _knowledge(self) -> list[Knowledge]:
        return self.extractor.extract(self.passages)

    @cached_property
    def _graph(self) -> EntityGraph:
        return self.stages.get(self._graph_key, EntityGraph, lambda: build_entity_graph(self._knowledge, self.passages))

    @cached_property
    def _corpus(self) -> Corpus:
        vectors = self.stages.encode(self.encoder, self._graph.sentences)
        return Corpus(self._graph, self._material, vectors, self._graph.entity_vectors(vectors))

    @cached_property
    def _material(self) -> Material:
        models = (self.steps.fingerprint, self.tokenizer.fingerprint)
        key = self.stages.key("material", self._graph_key, *models, self.settings.description_tokens)
        return self.stages.get(key, Material, lambda: self.steps.material(lambda: self._knowledge, self._graph))

    def _topics(self) -> tuple[str, Topics, Tensor, Tensor]:
        """Return the key, the topics, and the entities ``[E, T]`` and relations ``[m, T]`` of each topic."""
        settings, steps = self.settings, self.steps

        def make() -> tuple[Topics, Tensor, Tensor, int]:
            corpus, skipped_before = self._corpus, steps.num_skipped
            has_vector = corpus.entity_vectors.abs().sum(dim=1) > 0
            vectors = corpus.entity_vectors[has_vector]
            centre = vectors.mean(dim=0) if len(vectors) else vectors.new_zeros(vectors.shape[1])
            topics = steps.find_topics(corpus, centre)
            similarity = topics.similarity(corpus.sentence_vectors)
            entity_similarity = corpus.graph.entity_scores(similarity)[has_vector]
            topics = replace(
                topics,
                entity_threshold=covering_threshold(entity_similarity, coverage=settings.coverage),
                threshold=covering_threshold(similarity, coverage=settings.coverage),
            )
            entities = steps.relevant_entities(corpus, topics)
            relations = steps.relevant_relations(corpus, topics, entities)
            return topics, entities, relations, steps.num_skipped - skipped_before

        depends = (settings.num_topics, settings.coverage, settings.num_terms, settings.seed, settings.context_tokens)
        key = self.stages.key("topics", self._graph_key, settings.description_tokens, *depends, *self._fingerprints)
        topics, entities, relations, skipped = self.stages.get(key, tuple[Topics, Tensor, Tensor, int], make)
        self._num_skipped += skipped
        return key, topics, entities, relations

    @property
    def _fingerprints(self) -> tuple[str, str, str]:
        return self.steps.fingerprint, self.encoder.fingerprint, self.tokenizer.fingerprint

    def _summaries(self, key: str, graph_index: int, graph: Subgraph, relations: Relations) -> "SummarisedGraph":
        """Find the communities of a graph, whose ``key`` is that of the stage that selected it, and summarise them."""
        settings, first = self.settings, len(self._material.texts)
        depends = (settings.resolution, settings.max_community, settings.min_component, settings.seed)
        key = self.stages.key("communities", key, graph_index, *depends)
        hierarchy = self.stages.get(key, Hierarchy, lambda: hierarchical_leiden(graph.edges, graph.weight, settings))

        def make() -> tuple[Material, Sequence[Sequence[int]], Tensor, int]:
            skipped_before = self.steps.num_skipped
            entry = self._summarise(relations, hierarchy)
            return entry.material.after(first), entry.summaries, entry.vectors, self.steps.num_skipped - skipped_before

        limits = (settings.context_tokens, settings.summary_tokens, settings.centrality, settings.description_tokens)
        key = self.stages.key("summaries", key, *limits, *self._fingerprints)
        written, summaries, vectors, skipped = self.stages.get(
            key, tuple[Material, Sequence[Sequence[int]], Tensor, int], make
        )
        self._num_skipped += skipped
        return SummarisedGraph(relations, hierarchy, self._material + written, summaries, vectors)

    def _summarise(self, relations: Relations, hierarchy: Hierarchy) -> "SummarisedGraph":
        material = self._material.copy()
        summaries = summarise_communities(
            hierarchy,
            relations,
            material,
            lambda contexts, texts: self.steps.summarise(contexts, texts, self._corpus),
            context_tokens=self.settings.context_tokens,
        )
        vectors = self.steps.vectors(summaries, material, self._corpus)
        return SummarisedGraph(relations, hierarchy, material, summaries, vectors)

    def _assemble(
        self, topics: Topics, graphs: Sequence[Subgraph], summarised: Sequence["SummarisedGraph"]
    ) -> ReTAGIndex:
        texts = [[join_texts(entry.material, summary) for summary in entry.summaries] for entry in summarised]
        num_tokens = [count_tokens(self.tokenizer, summaries) for summaries in texts]
        communities, sentences = _assemble(self._graph, summarised, num_tokens, is_extractive=self.steps.is_extractive)
        general = summarised[0].hierarchy
        num_placed = sum(len(nodes) for nodes, level in zip(general.members, general.level, strict=True) if level == 0)
        report = ReTAGReport(
            passages=len(self.passages),
            corpus_tokens=sum(count_tokens(self.tokenizer, self.passages)),
            entities=len(self._graph.names),
            relations=len(self._graph.edges),
            unrelated=len(self._graph.names) - num_placed,
            skipped=self._num_skipped,
        )
        return ReTAGIndex(
            settings=self.settings,
            passage_ids=list(self.ids),
            entities=self._graph.names,
            topics=topics,
            graphs=graphs,
            communities=communities,
            sentences=sentences,
            report=report,
        )


def _hierarchy_of(index: ReTAGIndex, graph: int) -> Hierarchy:
    """Return the communities of one graph of an index."""
    communities = index.communities
    indices = (communities.graph == graph).nonzero().flatten().tolist()
    parents = communities.parent[indices].tolist()
    return Hierarchy(
        level=communities.level[indices].tolist(),
        parent=[parent if parent < 0 else parent - indices[0] for parent in parents],
        members=[communities.members[community].tolist() for community in indices],
    )


@dataclass(frozen=True)
class SummarisedGraph:
    """The communities of one graph with their summaries."""

    relations: Relations  # the graph's related pairs
    hierarchy: Hierarchy  # its communities
    material: Material  # texts that were summarised, followed by those that a language model wrote
    summaries: Sequence[Sequence[int]]  # text indices of each community's summary
    vectors: Tensor  # `[n, d]` of the summaries


def _subgraph(
    graph: EntityGraph, entities: Tensor | None = None, related: Tensor | None = None
) -> tuple[Subgraph, Relations]:
    """Select the entities ``[E]`` bool and relations ``[m]`` bool of a topic; all of them by default."""
    nodes, positions = torch.arange(len(graph.names)), torch.arange(len(graph.edges))
    if entities is not None and related is not None:
        nodes, positions = nodes[entities], positions[related]
    edges = graph.edges[positions]
    relations = Relations.of([(head, tail) for head, tail in edges.tolist()], positions.tolist())
    return Subgraph(nodes, edges, graph.weight[positions]), relations


def _assemble(
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
