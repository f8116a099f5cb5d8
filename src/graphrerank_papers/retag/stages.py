"""The stages of a ReTAG index: their fingerprints, computation, files and combination."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.caching import hash_texts
from graphrerank.knowledge.passage_knowledge import Knowledge, KnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens
from graphrerank_papers.indexing.encode import IndexEncoder, encode_in_blocks
from graphrerank_papers.indexing.stages import StageData, Stages
from graphrerank_papers.retag.assembly import SummarisedGraph, assemble, subgraph
from graphrerank_papers.retag.communities import Rows
from graphrerank_papers.retag.community_summaries import summarise_communities
from graphrerank_papers.retag.entity_graph import EntityGraph, build_entity_graph
from graphrerank_papers.retag.index import ReTAGIndex, ReTAGSettings, Subgraph
from graphrerank_papers.retag.language_steps import Corpus, LanguageSteps, join_texts
from graphrerank_papers.retag.leiden import Hierarchy, hierarchical_leiden
from graphrerank_papers.retag.report import ReTAGReport
from graphrerank_papers.retag.summary_material import Material, Relations
from graphrerank_papers.retag.topic_mining import covering_threshold
from graphrerank_papers.retag.topics import Topics
from graphrerank_papers.retag.update import PreviousIndex

FORMAT = 1  # increment when the content of a stage changes


@dataclass
class ReTAGStages:
    """The stages of one index; see :class:`~graphrerank_papers.retag.builder.ReTAGIndexBuilder`."""

    stages: Stages  # storage
    tokenizer: Tokenizer  # tokenizer that measures texts
    encoder: IndexEncoder  # encoder of sentences
    extractor: KnowledgeExtractor  # extractor of entities and relations
    steps: LanguageSteps
    ids: Sequence[str]  # `P` ids of the passages
    passages: Sequence[str]  # `P` texts
    settings: ReTAGSettings  # settings of the index

    def __post_init__(self) -> None:
        self._graph_key = self.stages.key(
            "entity_graph", FORMAT, hash_texts(self.passages).hex(), self.extractor.fingerprint
        )
        self._num_skipped = 0
        self._num_summarised = 0

    def build(self) -> ReTAGIndex:
        """Compute the missing stages and assemble the index."""
        topics_key, topics, entities, relations = self._topics()
        graphs, summarised = [], []
        for graph_index, selected in enumerate([(None, None), *zip(entities.T, relations.T, strict=True)]):
            graph, related = subgraph(self._graph, *selected)
            key, hierarchy = self._hierarchy(topics_key if graph_index else self._graph_key, graph_index, related)
            graphs.append(graph)
            summarised.append(self._summaries(key, related, hierarchy))
        return self._assemble(topics, graphs, summarised)

    def update(self, index: ReTAGIndex) -> ReTAGIndex:
        """Assemble an index that keeps the topics and the unchanged communities of another one."""
        previous = PreviousIndex(index, self._graph.names)
        new = {"first_passage": len(index.passage_ids)}
        entities, relations = previous.entities, previous.relations(self._graph)
        if len(index.topics):
            first_entity = len(index.entities)
            entities |= self.steps.relevant_entities(self._corpus, index.topics, **new, first_entity=first_entity)
            relations |= self.steps.relevant_relations(self._corpus, index.topics, entities, **new)
        graphs, summarised = [], []
        for graph_index, selected in enumerate([(None, None), *zip(entities.T, relations.T, strict=True)]):
            graph, related = subgraph(self._graph, *selected)
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
        def make() -> StageData:
            graph = build_entity_graph(self._knowledge, self.passages)
            arrays = {"passage": graph.passage, "edges": graph.edges, "weight": graph.weight}
            arrays |= {"named": graph.named.indices, "named_ptr": graph.named.indptr}
            arrays |= {"together": graph.together.indices, "together_ptr": graph.together.indptr}
            strings = {"names": graph.names, "normalized": graph.normalized, "sentences": graph.sentences}
            return arrays, strings

        names = ("passage", "edges", "weight", "named", "named_ptr", "together", "together_ptr")
        arrays, strings = self.stages.get(self._graph_key, names, make)
        return EntityGraph(
            **strings,
            passage=arrays["passage"],
            named=Rows(arrays["named_ptr"], arrays["named"]),
            edges=arrays["edges"],
            weight=arrays["weight"],
            together=Rows(arrays["together_ptr"], arrays["together"]),
        )

    @cached_property
    def _corpus(self) -> Corpus:
        vectors = encode_in_blocks(self.stages, self.encoder, self._graph.sentences)
        return Corpus(self._graph, self._material, vectors, self._graph.entity_vectors(vectors))

    @cached_property
    def _material(self) -> Material:
        def make() -> StageData:
            material = self.steps.material(lambda: self._knowledge, self._graph)
            rows = {"sources": material.sources, "nodes": material.nodes, "edges": material.edges}
            return _arrays(rows), {"texts": material.texts, "num_tokens": material.num_tokens}

        models = (self.steps.fingerprint, self.tokenizer.fingerprint)
        key = self.stages.key("material", FORMAT, self._graph_key, *models, self.settings.description_tokens)
        arrays, content = self.stages.get(key, _names("sources", "nodes", "edges"), make)
        return Material(content["texts"], content["num_tokens"], **_lists(arrays, "sources", "nodes", "edges"))

    def _topics(self) -> tuple[str, Topics, Tensor, Tensor]:
        """Return the key, the topics, and the entities ``[E, T]`` and relations ``[m, T]`` of each topic."""
        settings, steps = self.settings, self.steps

        def make() -> StageData:
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
            content = {"names": topics.names, "terms": topics.terms, "skipped": steps.num_skipped - skipped_before}
            content |= {"entity_threshold": topics.entity_threshold, "threshold": topics.threshold}
            arrays = {"vectors": topics.vectors, "centre": centre, "entities": entities, "relations": relations}
            return arrays, content

        depends = (settings.num_topics, settings.coverage, settings.num_terms, settings.seed, settings.context_tokens)
        key = self.stages.key(
            "topics", FORMAT, self._graph_key, settings.description_tokens, *depends, *self._fingerprints
        )
        arrays, content = self.stages.get(key, ("vectors", "centre", "entities", "relations"), make)
        self._num_skipped += content.pop("skipped")
        topics = Topics(**content, vectors=arrays["vectors"], centre=arrays["centre"])
        return key, topics, arrays["entities"], arrays["relations"]

    @property
    def _fingerprints(self) -> tuple[str, str, str]:
        return self.steps.fingerprint, self.encoder.fingerprint, self.tokenizer.fingerprint

    def _hierarchy(self, key: str, graph_index: int, relations: Relations) -> tuple[str, Hierarchy]:
        settings = self.settings

        def make() -> StageData:
            positions = torch.tensor(relations.positions, dtype=torch.int64)
            hierarchy = hierarchical_leiden(
                self._graph.edges[positions],
                self._graph.weight[positions],
                resolution=settings.resolution,
                max_community=settings.max_community,
                min_component=settings.min_component,
                seed=settings.seed,
            )
            return _arrays({"members": hierarchy.members}), {"level": hierarchy.level, "parent": hierarchy.parent}

        depends = (settings.resolution, settings.max_community, settings.min_component, settings.seed)
        key = self.stages.key("communities", FORMAT, key, graph_index, *depends)
        arrays, content = self.stages.get(key, _names("members"), make)
        return key, Hierarchy(content["level"], content["parent"], **_lists(arrays, "members"))

    def _summaries(self, key: str, relations: Relations, hierarchy: Hierarchy) -> SummarisedGraph:
        settings = self.settings

        def make() -> StageData:
            skipped_before = self.steps.num_skipped
            entry = self._summarise(relations, hierarchy, self._corpus.material.copy(), {})
            first = len(self._corpus.material.texts)
            content = {"texts": entry.material.texts[first:], "num_tokens": entry.material.num_tokens[first:]}
            rows = {"summaries": entry.summaries, "sources": entry.material.sources[first:]}
            num_skipped = self.steps.num_skipped - skipped_before
            return {**_arrays(rows), "vectors": entry.vectors}, {**content, "skipped": num_skipped}

        limits = (settings.context_tokens, settings.summary_tokens, settings.centrality, settings.description_tokens)
        key = self.stages.key("summaries", FORMAT, key, *limits, *self._fingerprints)
        arrays, content = self.stages.get(key, ("vectors", *_names("summaries", "sources")), make)
        self._num_skipped += content["skipped"]
        self._num_summarised += len(hierarchy)
        rows = _lists(arrays, "summaries", "sources")
        material = self._corpus.material.copy()
        for text, length, passages in zip(content["texts"], content["num_tokens"], rows["sources"], strict=True):
            material.add(text, length, passages)
        return SummarisedGraph(relations, hierarchy, material, rows["summaries"], arrays["vectors"])

    def _summarise(
        self, relations: Relations, hierarchy: Hierarchy, material: Material, known: Mapping[int, Sequence[int]]
    ) -> SummarisedGraph:
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
        self, topics: Topics, graphs: Sequence[Subgraph], summarised: Sequence[SummarisedGraph]
    ) -> ReTAGIndex:
        texts = [[join_texts(entry.material, summary) for summary in entry.summaries] for entry in summarised]
        num_tokens = [count_tokens(self.tokenizer, summaries) for summaries in texts]
        communities, sentences = assemble(self._graph, summarised, num_tokens, is_extractive=self.steps.is_extractive)
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


def _arrays(rows: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Tensor]:
    columns = {name: Rows.of(lists) for name, lists in rows.items()}
    return {f"{name}_{field}": getattr(row, field) for name, row in columns.items() for field in ("indptr", "indices")}


def _names(*rows: str) -> tuple[str, ...]:
    return tuple(f"{name}_{field}" for name in rows for field in ("indptr", "indices"))


def _lists(arrays: Mapping[str, Tensor], *rows: str) -> dict[str, list[list[int]]]:
    return {name: Rows(arrays[f"{name}_indptr"], arrays[f"{name}_indices"]).tolist() for name in rows}
