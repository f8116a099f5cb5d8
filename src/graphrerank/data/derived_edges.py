"""Edges that follow from passages themselves, and what it takes to find them again when passages have come or gone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from graphrerank.corpus import CorpusGraph, EntityIncidence
from graphrerank.corpus.edge_lists import adjacency_edges
from graphrerank.corpus.edge_types import ADJACENCY, EDGE_TYPES, ENTITY, REFERENCE, SIMILARITY
from graphrerank.corpus.passages import Passages
from graphrerank.data.enrichment.mentions import find_mentions
from graphrerank.data.enrichment.neighbours import choose_neighbours, nearest_neighbor_edges, shared_weight
from graphrerank.data.readers.documents import split_passage
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor
from graphrerank.utils.checks import UserError

Edges = tuple[Tensor, Tensor, Tensor]  # pairs `[M, 2]`, weights `[M]` and types `[M]`
FILE_ENTITIES = "file"  # the source of entities that a data set folder has
EXTRACTORS = {"spelling": PatternEntityExtractor, "spacy": SpacyEntityExtractor}
NAME_WORDS = 6  # titles with more at the median are headlines, as of papers, and short ones occur by chance
NEIGHBOURS, ALL_NEAREST = 3, 1 << 17  # in a larger corpus nearest ones only of passages with fewer neighbours


class AutomaticChoices(BaseModel):
    """Choices of ``edges=auto`` that depend on all passages. They are made again for a part of the corpus.

    Attributes:
        mentions: Whether edges by mentions are searched for. None: if titles are names.
        adjacency: Whether neighbouring chunks are joined if every passage says its place in a document. If False, they
            are joined, or not, as the user said.
    """

    model_config = ConfigDict(frozen=True)

    mentions: bool | None = None
    adjacency: bool = False

    def mention_type(self, stated_types: Tensor, titles: Iterable[str]) -> int | None:
        """Return the type of edges by mentions, weaker than that of stated references; None if there are to be none.

        Args:
            stated_types: Types of the edges that do not follow from titles and entities, ``[M]``.
            titles: Titles of the passages, empty for none.
        """
        if self.mentions is False or (self.mentions is None and not titles_are_names(titles)):
            return None
        return ENTITY if bool((stated_types == REFERENCE).any()) else REFERENCE

    def neighbouring_chunks(self, records: Iterable[Mapping[str, Any]]) -> Edges | None:
        """Return the edges between neighbouring chunks, by the metadata of all passages; None if there are to be none.

        Raises:
            UserError: If two passages have the same place.
        """
        places = [place_in_document(record) for record in records] if self.adjacency else [None]
        known = [place for place in places if place is not None]
        if len(known) < len(places):
            return None
        return of_type(adjacency_edges([doc for doc, _ in known], [number for _, number in known]), ADJACENCY)

    @staticmethod
    def knn_below(num_nodes: int) -> int:
        """Return below how many neighbours a passage of a corpus gets edges to its nearest ones."""
        return num_nodes if num_nodes <= ALL_NEAREST else NEIGHBOURS


def titles_are_names(titles: Iterable[str]) -> bool:
    """Return whether titles name something that others may mention, as those of an encyclopedia; headlines do not."""
    lengths = [len(title.split()) for title in titles if title]
    return bool(lengths) and median(lengths) <= NAME_WORDS


def place_in_document(record: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return of which document a passage is a chunk, and its number there; None if its metadata do not say both."""
    doc_id, chunk_id = record.get("doc_id"), record.get("chunk_id")
    return (doc_id, chunk_id) if isinstance(doc_id, str) and type(chunk_id) is int else None


class EdgeRule(BaseModel):
    """How edges of a data set follow from titles and entities."""

    model_config = ConfigDict(frozen=True)

    # of edges by mentions; None where they are not searched for
    mention_type: int | None = Field(None, ge=0, lt=len(EDGE_TYPES))
    entity_source: str | None = None  # `spelling`, `spacy`, `file` or an extractor's class; None without entities
    max_entity_share: float = 1.0  # of the passages; an entity in more is ignored
    makes_choices: bool = False  # whether `choose_neighbours` joins passages; else they are joined query by query
    automatic: AutomaticChoices | None = None  # what is decided again for parts; None: nothing


@dataclass(frozen=True)
class DerivedEdges:
    """Sources from which the edges of a data set are derived; its graph contains all of them."""

    stated: Edges  # those that do not follow from titles and entities
    rule: EdgeRule
    entity_names: Sequence[AbstractSet[str]] | None = None  # normalised, of each passage; None without entities

    def search(self, titles: Sequence[str], texts: Sequence[str]) -> tuple[dict[str, Edges], EntityIncidence | None]:
        """Find edges by mentions and shared entities, by their source; return them and which passage holds which."""
        found, incidence = dict[str, Edges](), None
        if self.rule.mention_type is not None:
            found["mentions"] = of_type(find_mentions(titles, texts), self.rule.mention_type)
        if self.entity_names is not None:
            incidence = EntityIncidence.from_names(self.entity_names, max_share=self.rule.max_entity_share)
        if self.rule.makes_choices and incidence is not None:
            pairs, total = choose_neighbours(incidence)
            weight = shared_weight(total, incidence.num_nodes)
            found[f"entities by {self.rule.entity_source}"] = (pairs, weight, torch.full((len(pairs),), ENTITY))
        return found, incidence

    def join(self, passages: Passages) -> CorpusGraph:
        """Join passages by the stated edges, and by mentions and shared entities, which are searched for again."""
        split: list[tuple[str, str]] = []
        if self.rule.mention_type is not None:
            assert passages.title_lengths is not None
            split = [split_passage(*pair) for pair in zip(passages.texts, passages.title_lengths.tolist(), strict=True)]
        found, incidence = self.search([title for title, _ in split], [text for _, text in split])
        return graph_of(passages, [self.stated, *found.values()], None if self.rule.makes_choices else incidence)


@dataclass(frozen=True)
class FoundEdges:
    """Recipe for edges that depend on the whole corpus. They are found again for a part of the corpus."""

    stated: Edges | None  # those that do not follow from others; None: those of the graph
    rule: EdgeRule
    entity_names: Callable[[npt.NDArray[np.int64]], Sequence[AbstractSet[str]]] | None  # of some passages
    knn: int = 0
    knn_below: int | None = None  # of `Dataset`

    def again(self, subgraph: CorpusGraph, whole: CorpusGraph, principals: AbstractSet[str]) -> CorpusGraph:
        """Return what the holders of some principals see, with the edges that are found in it alone."""
        nodes = torch.arange(whole.num_nodes) if subgraph.part_of is None else subgraph.part_of[1]
        number = torch.full((whole.num_nodes,), -1)
        number[nodes] = torch.arange(len(nodes))
        stated = subgraph.typed_edges()
        if self.stated is not None:
            pairs = number[self.stated[0]]
            kept = (pairs >= 0).all(1)
            stated = (pairs[kept], self.stated[1][kept], self.stated[2][kept])
            if (guarded := whole.guarded) is not None:
                seen = guarded.select(number, guarded.allowed(principals))
                stated = joined([stated, (seen.pairs, seen.weight, seen.types)])
        names = None if self.entity_names is None else self.entity_names(nodes.numpy())
        rule, below = self.rule, subgraph.num_nodes if self.knn_below == whole.num_nodes else self.knn_below
        if (automatic := rule.automatic) is not None:
            rule, stated = _decided_again(rule, automatic, stated, subgraph.passages)
            below = automatic.knn_below(subgraph.num_nodes)
        found = DerivedEdges(stated, rule, names).join(subgraph.passages)
        graph = replace(found, vectors=subgraph.vectors, pages=subgraph.pages, part_of=subgraph.part_of)
        if not self.knn or graph.embedding is None:
            return graph
        few = None if below is None else torch.nonzero(graph.degree < below).flatten()
        pairs, similarity = nearest_neighbor_edges(graph.embedding.float(), k=self.knn, nodes=few)
        return graph.with_edges(pairs, similarity, edge_type=SIMILARITY)


def _decided_again(
    rule: EdgeRule, automatic: AutomaticChoices, stated: Edges, passages: Passages
) -> tuple[EdgeRule, Edges]:
    """Return the rule and the stated edges that ``edges=auto`` gives for some passages alone."""
    titles = map(passages.title, range(len(passages)))
    mention_type = automatic.mention_type(stated[2], titles)
    metadata = passages.metadata
    records = [{}] * len(passages) if metadata is None else map(metadata.record, range(len(passages)))
    try:
        chunks = automatic.neighbouring_chunks(records)
    except UserError:  # two have one place: a data set folder of these passages alone would be refused
        chunks = None
    return rule.model_copy(update={"mention_type": mention_type}), stated if chunks is None else joined(
        [stated, chunks]
    )


def of_type(pairs: Tensor, edge_type: int) -> Edges:
    """Return edges of one type and weight 1."""
    return pairs, torch.ones(len(pairs)), torch.full((len(pairs),), edge_type)


def joined(parts: Iterable[Edges]) -> Edges:
    """Put edges behind each other."""
    pairs, weights, types = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return pairs, weights, types


def graph_of(passages: Passages, parts: Iterable[Edges], entities: EntityIncidence | None) -> CorpusGraph:
    """Join passages by edges, and by the entities that they share."""
    pairs, weight, types = joined(parts)
    graph = CorpusGraph.from_edges(passages.ids, passages.texts, pairs, weight, edge_type=types)
    graph = replace(graph, passages=passages)
    return graph if entities is None else graph.with_entities(entities)
