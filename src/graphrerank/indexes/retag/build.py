"""One build of ReTAG's index: its stages, what they depend on, and what they hold."""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch
from torch import Tensor

from graphrerank.indexes.encode import IndexEncoder, digest, encode_in_parts
from graphrerank.indexes.retag.assembly import Summarised, assemble, subgraph
from graphrerank.indexes.retag.communities import Rows
from graphrerank.indexes.retag.community_summaries import summarise_communities
from graphrerank.indexes.retag.entity_graph import EntityGraph, build_entity_graph
from graphrerank.indexes.retag.index import ReTAGIndex, ReTAGSettings, Subgraph
from graphrerank.indexes.retag.language import Corpus, Language, join_texts
from graphrerank.indexes.retag.leiden import Hierarchy, hierarchical_leiden
from graphrerank.indexes.retag.report import ReTAGReport
from graphrerank.indexes.retag.summary_material import Material, Relations
from graphrerank.indexes.retag.topic_mining import covering_threshold
from graphrerank.indexes.retag.topics import Topics
from graphrerank.indexes.retag.update import OldIndex
from graphrerank.indexes.stages import Made, Stages
from graphrerank.knowledge import Knowledge, KnowledgeExtractor
from graphrerank.text import Tokenizer, count_tokens

FORMAT = 1  # of the files: a change of what a stage holds must change it


class ReTAGBuild:
    """A build of some passages with some models; see :class:`~graphrerank.indexes.ReTAGIndexBuilder`."""

    def __init__(
        self,
        stages: Stages,
        tokenizer: Tokenizer,
        encoder: IndexEncoder,
        extractor: KnowledgeExtractor,
        language: Language,
        ids: Sequence[str],
        passages: Sequence[str],
        settings: ReTAGSettings,
    ) -> None:
        self._stages, self._tokenizer, self._encoder, self._extractor = stages, tokenizer, encoder, extractor
        self._language, self._ids, self._passages, self._settings = language, ids, passages, settings
        self._key = stages.key("entity_graph", FORMAT, digest(passages), extractor.fingerprint)
        self._skipped = 0
        self._summarised = 0

    def index(self) -> ReTAGIndex:
        """Make what is missing, and put all together."""
        key, topics, entities, relations = self._topics()
        graphs = [subgraph(self._graph, *own) for own in ((None, None), *zip(entities.T, relations.T, strict=True))]
        parts = [self._communities(key, number, relations) for number, (_, relations) in enumerate(graphs)]
        return self._together(topics, [graph for graph, _ in graphs], parts)

    def updated(self, index: ReTAGIndex) -> ReTAGIndex:
        """Put an index together whose topics and untouched communities are those of another."""
        old = OldIndex(index, self._graph.names)
        new = {"first_passage": len(index.passage_ids)}
        entities, related = old.entities, old.relations(self._graph)
        if len(index.topics):
            first_entity = len(index.entities)
            more = self._language.relevant_entities(self._corpus, index.topics, **new, first_entity=first_entity)
            entities |= more
            related |= self._language.relevant_relations(self._corpus, index.topics, entities, **new)
        parts, graphs = [], []
        for number, own in enumerate([(None, None), *zip(entities.T, related.T, strict=True)]):
            graph, relations = subgraph(self._graph, *own)
            hierarchy, origin = old.grafted(number, graph)
            material = self._corpus.material.grown()
            known = old.known_summaries(number, hierarchy, origin, relations, material, picked=self._language.picked)
            parts.append(self._summed_up(relations, hierarchy, material, known))
            self._summarised += len(hierarchy) - len(known)
            graphs.append(graph)
        self._skipped = self._language.skipped
        return self._together(index.topics, graphs, parts)

    @cached_property
    def _knowledge(self) -> list[Knowledge]:
        return self._extractor.extract(self._passages)

    @cached_property
    def _graph(self) -> EntityGraph:
        def make() -> Made:
            graph = build_entity_graph(self._knowledge, self._passages)
            arrays = {"passage": graph.passage, "edges": graph.edges, "weight": graph.weight}
            arrays |= {"named": graph.named.indices, "named_ptr": graph.named.indptr}
            arrays |= {"together": graph.together.indices, "together_ptr": graph.together.indptr}
            strings = {"names": graph.names, "normalized": graph.normalized, "sentences": graph.sentences}
            return arrays, strings

        names = ("passage", "edges", "weight", "named", "named_ptr", "together", "together_ptr")
        arrays, strings = self._stages.get(self._key, names, make)
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
        vectors = encode_in_parts(self._stages, self._encoder, self._graph.sentences)
        return Corpus(self._graph, self._material, vectors, self._graph.entity_vectors(vectors))

    @cached_property
    def _material(self) -> Material:
        def make() -> Made:
            material = self._language.material(lambda: self._knowledge, self._graph)
            rows = {"sources": material.sources, "nodes": material.nodes, "edges": material.edges}
            return _arrays(rows), {"texts": material.texts, "num_tokens": material.num_tokens}

        settings = self._settings.description_tokens
        key = self._stages.key(
            "material", FORMAT, self._key, self._language.fingerprint, self._tokenizer.fingerprint, settings
        )
        arrays, content = self._stages.get(key, _names("sources", "nodes", "edges"), make)
        return Material(content["texts"], content["num_tokens"], **_lists(arrays, "sources", "nodes", "edges"))

    def _topics(self) -> tuple[str, Topics, Tensor, Tensor]:
        """Find topics, and the entities ``[E, T]`` and relations ``[m, T]`` of each."""
        settings, language = self._settings, self._language

        def make() -> Made:
            corpus, before = self._corpus, language.skipped
            told = corpus.entity_vectors[corpus.entity_vectors.abs().sum(dim=1) > 0]
            centre = told.mean(dim=0) if len(told) else corpus.entity_vectors.new_zeros(told.shape[1])
            found = language.find_topics(corpus, centre)
            near = Topics(found.names, found.terms, found.vectors, centre, 1.0, 1.0).similarity
            likeness = near(corpus.sentence_vectors)
            best = corpus.graph.entity_scores(likeness)[corpus.entity_vectors.abs().sum(dim=1) > 0]
            topics = Topics(
                names=found.names,
                terms=found.terms,
                vectors=found.vectors,
                centre=centre,
                entity_threshold=covering_threshold(best, coverage=settings.coverage),
                threshold=covering_threshold(likeness, coverage=settings.coverage),
            )
            entities = language.relevant_entities(corpus, topics, first_passage=0, first_entity=0)
            relations = language.relevant_relations(corpus, topics, entities, first_passage=0)
            content = {"names": topics.names, "terms": topics.terms, "skipped": language.skipped - before}
            content |= {"entity_threshold": topics.entity_threshold, "threshold": topics.threshold}
            arrays = {"vectors": topics.vectors, "centre": centre, "entities": entities, "relations": relations}
            return arrays, content

        depends = (settings.num_topics, settings.coverage, settings.num_terms, settings.seed, settings.context_tokens)
        models = (language.fingerprint, self._encoder.fingerprint, self._tokenizer.fingerprint)
        key = self._stages.key("topics", FORMAT, self._key, settings.description_tokens, *depends, *models)
        arrays, content = self._stages.get(key, ("vectors", "centre", "entities", "relations"), make)
        self._skipped += content.pop("skipped")
        topics = Topics(**content, vectors=arrays["vectors"], centre=arrays["centre"])
        return key, topics, arrays["entities"], arrays["relations"]

    def _communities(self, topics_key: str, number: int, relations: Relations) -> Summarised:
        settings = self._settings

        def cluster() -> Made:
            numbers = torch.tensor(relations.numbers, dtype=torch.int64)
            found = hierarchical_leiden(
                self._graph.edges[numbers],
                self._graph.weight[numbers],
                resolution=settings.resolution,
                max_community=settings.max_community,
                min_component=settings.min_component,
                seed=settings.seed,
            )
            return _arrays({"members": found.members}), {"level": found.level, "parent": found.parent}

        def summarise() -> Made:
            before = self._language.skipped
            part = self._summed_up(relations, hierarchy, self._corpus.material.grown(), {})
            begin = len(self._corpus.material.texts)
            written = {"texts": part.material.texts[begin:], "num_tokens": part.material.num_tokens[begin:]}
            rows = {"summaries": part.summaries, "sources": part.material.sources[begin:]}
            return {**_arrays(rows), "vectors": part.vectors}, {**written, "skipped": self._language.skipped - before}

        depends = (settings.resolution, settings.max_community, settings.min_component, settings.seed)
        key = self._stages.key("communities", FORMAT, topics_key if number else self._key, number, *depends)
        arrays, content = self._stages.get(key, _names("members"), cluster)
        hierarchy = Hierarchy(content["level"], content["parent"], **_lists(arrays, "members"))
        limits = (settings.context_tokens, settings.summary_tokens, settings.centrality, settings.description_tokens)
        models = (self._language.fingerprint, self._encoder.fingerprint, self._tokenizer.fingerprint)
        key = self._stages.key("summaries", FORMAT, key, *limits, *models)
        arrays, content = self._stages.get(key, ("vectors", *_names("summaries", "sources")), summarise)
        self._skipped += content["skipped"]
        self._summarised += len(hierarchy)
        material = self._corpus.material.grown()
        sources = _lists(arrays, "sources")["sources"]
        for text, length, passages in zip(content["texts"], content["num_tokens"], sources, strict=True):
            material.add(text, length, passages)
        summaries = _lists(arrays, "summaries")["summaries"]
        return Summarised(relations, hierarchy, material, summaries, arrays["vectors"])

    def _summed_up(
        self, relations: Relations, hierarchy: Hierarchy, material: Material, known: Mapping[int, Sequence[int]]
    ) -> Summarised:
        corpus = self._corpus
        summaries = summarise_communities(
            hierarchy,
            relations,
            material,
            self._language.summarizer(corpus),
            context_tokens=self._settings.context_tokens,
            known=known,
        )
        return Summarised(
            relations, hierarchy, material, summaries, self._language.vectors(summaries, material, corpus)
        )

    def _together(self, topics: Topics, graphs: Sequence[Subgraph], parts: Sequence[Summarised]) -> ReTAGIndex:
        texts = [[join_texts(part.material, numbers) for numbers in part.summaries] for part in parts]
        num_tokens = [count_tokens(self._tokenizer, written) for written in texts]
        communities, sentences = assemble(self._graph, parts, num_tokens, picked=self._language.picked)
        general = parts[0].hierarchy
        placed = sum(len(own) for own, level in zip(general.members, general.level, strict=True) if level == 0)
        report = ReTAGReport(
            passages=len(self._passages),
            corpus_tokens=sum(count_tokens(self._tokenizer, self._passages)),
            entities=len(self._graph.names),
            relations=len(self._graph.edges),
            unrelated=len(self._graph.names) - placed,
            summarised=self._summarised,
            skipped=self._skipped,
        )
        return ReTAGIndex(
            settings=self._settings,
            passage_ids=list(self._ids),
            entities=self._graph.names,
            topics=topics,
            graphs=graphs,
            communities=communities,
            sentences=sentences,
            report=report,
        )


def _arrays(rows: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, Tensor]:
    laid = {name: Rows.of(lists) for name, lists in rows.items()}
    return {f"{name}_{part}": getattr(row, part) for name, row in laid.items() for part in ("indptr", "indices")}


def _names(*rows: str) -> tuple[str, ...]:
    return tuple(f"{name}_{part}" for name in rows for part in ("indptr", "indices"))


def _lists(arrays: Mapping[str, Tensor], *rows: str) -> dict[str, list[list[int]]]:
    return {name: Rows(arrays[f"{name}_indptr"], arrays[f"{name}_indices"]).tolist() for name in rows}
