"""Building ReTAG's index, and adding passages to it: topics, communities of every graph, and their summaries."""

from collections.abc import Mapping, Sequence
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
from graphrerank_papers.indexing.stages import Stages
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
        """Add passages to an index; topics stay, and only the communities that change are summarised again.

        A new entity belongs to the topics near it, and joins the community to which it is most related. A community
        that outgrows ``max_community`` is split; new entities related to no known one form communities of their own. A
        community changes if it gains an entity or a relation, or if new passages contribute to the texts that its
        summary is made from. ``index_difference`` compares the result with a new build.

        Source: ours, for the first of ReTAG's open questions.

        Raises:
            ValueError: If the passages do not begin with the index's; or as :meth:`build`.
        """
        known = list(index.passage_ids)
        if list(ids[: len(known)]) != known:
            raise ValueError(f"`ids` must begin with the {len(known)} ids of the index, got others")
        return self._stages_of(ids, passages, index.settings).update(index)

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
        self._num_summarised = 0

    def build(self) -> ReTAGIndex:
        """Compute the missing stages and assemble the index."""
        topics_key, topics, entities, relations = self._topics()
        graphs, summarised = [], []
        for graph_index, selected in enumerate([(None, None), *zip(entities.T, relations.T, strict=True)]):
            graph, related = _subgraph(self._graph, *selected)
            key, hierarchy = self._hierarchy(topics_key if graph_index else self._graph_key, graph_index, graph)
            graphs.append(graph)
            summarised.append(self._summaries(key, related, hierarchy))
        return self._assemble(topics, graphs, summarised)

    def update(self, index: ReTAGIndex) -> ReTAGIndex:
        """Assemble an index that keeps the topics and the unchanged communities of another one."""
        previous = _PreviousIndex(index, self._graph.names)
        new = {"first_passage": len(index.passage_ids)}
        entities, relations = previous.entities, previous.relations(self._graph)
        if len(index.topics):
            first_entity = len(index.entities)
            entities |= self.steps.relevant_entities(self._corpus, index.topics, **new, first_entity=first_entity)
            relations |= self.steps.relevant_relations(self._corpus, index.topics, entities, **new)
        graphs, summarised = [], []
        for graph_index, selected in enumerate([(None, None), *zip(entities.T, relations.T, strict=True)]):
            graph, related = _subgraph(self._graph, *selected)
            hierarchy, origin = previous.grow(graph_index, graph)
            material = self._corpus.material.copy()
            known = previous.known_summaries(
                graph_index, hierarchy, origin, related, material, is_extractive=self.steps.is_extractive
            )
            graphs.append(graph)
            summarised.append(self._summarise(related, hierarchy, material, known))
            self._num_summarised += len(hierarchy) - len(known)
        self._num_skipped = self.steps.num_skipped
        return self._assemble(index.topics, graphs, summarised)

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
            entities = steps.relevant_entities(corpus, topics, first_passage=0, first_entity=0)
            relations = steps.relevant_relations(corpus, topics, entities, first_passage=0)
            return topics, entities, relations, steps.num_skipped - skipped_before

        depends = (settings.num_topics, settings.coverage, settings.num_terms, settings.seed, settings.context_tokens)
        key = self.stages.key("topics", self._graph_key, settings.description_tokens, *depends, *self._fingerprints)
        topics, entities, relations, skipped = self.stages.get(key, tuple[Topics, Tensor, Tensor, int], make)
        self._num_skipped += skipped
        return key, topics, entities, relations

    @property
    def _fingerprints(self) -> tuple[str, str, str]:
        return self.steps.fingerprint, self.encoder.fingerprint, self.tokenizer.fingerprint

    def _hierarchy(self, key: str, graph_index: int, graph: Subgraph) -> tuple[str, Hierarchy]:
        settings = self.settings
        depends = (settings.resolution, settings.max_community, settings.min_component, settings.seed)
        key = self.stages.key("communities", key, graph_index, *depends)
        return key, self.stages.get(key, Hierarchy, lambda: hierarchical_leiden(graph.edges, graph.weight, settings))

    def _summaries(self, key: str, relations: Relations, hierarchy: Hierarchy) -> "SummarisedGraph":
        settings, first = self.settings, len(self._material.texts)

        def make() -> tuple[Material, Sequence[Sequence[int]], Tensor, int]:
            skipped_before = self.steps.num_skipped
            entry = self._summarise(relations, hierarchy, self._material.copy(), {})
            return entry.material.after(first), entry.summaries, entry.vectors, self.steps.num_skipped - skipped_before

        limits = (settings.context_tokens, settings.summary_tokens, settings.centrality, settings.description_tokens)
        key = self.stages.key("summaries", key, *limits, *self._fingerprints)
        written, summaries, vectors, skipped = self.stages.get(
            key, tuple[Material, Sequence[Sequence[int]], Tensor, int], make
        )
        self._num_skipped += skipped
        self._num_summarised += len(hierarchy)
        return SummarisedGraph(relations, hierarchy, self._material + written, summaries, vectors)

    def _summarise(
        self, relations: Relations, hierarchy: Hierarchy, material: Material, known: Mapping[int, Sequence[int]]
    ) -> "SummarisedGraph":
        summaries = summarise_communities(
            hierarchy,
            relations,
            material,
            self.steps.summarizer(self._corpus),
            context_tokens=self.settings.context_tokens,
            known=known,
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
            summarised=self._num_summarised,
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


class _PreviousIndex:
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
