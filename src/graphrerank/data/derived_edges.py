"""Edges derived from passages, and the recipes to derive them again when passages are added, removed or hidden."""

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

from graphrerank._moved import moved_names
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

__getattr__ = moved_names(__name__)

Edges = tuple[Tensor, Tensor, Tensor]  # Pairs `[M, 2]`, weights `[M]` and types `[M]`.
FILE_ENTITIES = "file"  # Source of entities that are listed in the data set folder.
EXTRACTORS = {"spelling": PatternEntityExtractor, "spacy": SpacyEntityExtractor}
# Titles with a larger median number of words are headlines, such as those of papers. They are not names, and short ones
# occur in other texts by chance.
NAME_WORDS = 6
# In a corpus with more than `ALL_NEAREST` passages, only passages with fewer than `NEIGHBOURS` neighbours get edges to
# nearest neighbours.
NEIGHBOURS, ALL_NEAREST = 3, 1 << 17


class AutomaticChoices(BaseModel):
    """Choices of ``edges=auto`` that depend on all passages. They are made again for a visible subgraph.

    Attributes:
        mentions: Whether to search for edges by mentions. If None, they are searched for if titles are names.
        adjacency: Whether to join adjacent chunks if every passage has a position in a document. False if the user
            decided whether to join them.
    """

    model_config = ConfigDict(frozen=True)

    mentions: bool | None = None
    adjacency: bool = False

    def mention_type(self, stated_types: Tensor, titles: Iterable[str]) -> int | None:
        """Return the type of edges by mentions.

        Args:
            stated_types: Types of the explicit edges, ``[M]``.
            titles: Titles of the passages. Passages without a title have an empty one.

        Returns:
            Type ``reference``, or the weaker ``entity`` if there are explicit references. None if mentions are not
            searched for.
        """
        if self.mentions is False or (self.mentions is None and not titles_are_names(titles)):
            return None
        return ENTITY if bool((stated_types == REFERENCE).any()) else REFERENCE

    def neighbouring_chunks(self, records: Iterable[Mapping[str, Any]]) -> Edges | None:
        """Return the edges between adjacent chunks.

        Args:
            records: Metadata of all passages.

        Returns:
            The edges. None if a passage has no position in a document, or if chunks are not joined.

        Raises:
            UserError: If two passages have the same position.
        """
        positions = [place_in_document(record) for record in records] if self.adjacency else [None]
        chunks = [position for position in positions if position is not None]
        if len(chunks) < len(positions):
            return None
        return of_type(adjacency_edges([doc for doc, _ in chunks], [number for _, number in chunks]), ADJACENCY)

    @staticmethod
    def knn_below(num_nodes: int) -> int:
        """Return the number of neighbours below which a passage gets edges to its nearest neighbours.

        Args:
            num_nodes: Number of passages in the corpus.

        Returns:
            ``num_nodes``, so that all passages get them, or 3 in a large corpus.
        """
        return num_nodes if num_nodes <= ALL_NEAREST else NEIGHBOURS


def titles_are_names(titles: Iterable[str]) -> bool:
    """Return whether titles are names that other texts may mention, as in an encyclopedia, rather than headlines.

    Args:
        titles: Titles of the passages. Empty ones are ignored.

    Returns:
        True if the median number of words is at most 6.
    """
    lengths = [len(title.split()) for title in titles if title]
    return bool(lengths) and median(lengths) <= NAME_WORDS


def place_in_document(record: Mapping[str, Any]) -> tuple[str, int] | None:
    """Return the position of a chunk in its document.

    Args:
        record: Metadata of a passage.

    Returns:
        Id of the document and number of the chunk. None if ``doc_id`` or ``chunk_id`` is missing or has the wrong type.
    """
    doc_id, chunk_id = record.get("doc_id"), record.get("chunk_id")
    return (doc_id, chunk_id) if isinstance(doc_id, str) and type(chunk_id) is int else None


class EdgeRule(BaseModel):
    """Rule by which edges are derived from titles and entities.

    Attributes:
        mention_type: Type of edges by mentions. None if they are not searched for.
        entity_source: Source of entities: ``spelling``, ``spacy``, ``file``, or the class of an extractor. None if
            there are no entities.
        max_entity_share: Maximum share of passages with an entity. More frequent entities are ignored.
        makes_choices: Whether passages are joined by ``choose_neighbours``. If False, edges by shared entities are
            computed per query.
        automatic: Choices that are made again for a visible subgraph. None if there are none.
    """

    model_config = ConfigDict(frozen=True)

    mention_type: int | None = Field(None, ge=0, lt=len(EDGE_TYPES))
    entity_source: str | None = None
    max_entity_share: float = 1.0
    makes_choices: bool = False
    automatic: AutomaticChoices | None = None


@dataclass(frozen=True)
class DerivedEdges:
    """Sources from which the edges of a data set are derived. The graph contains all derived edges.

    Attributes:
        stated: Explicit edges, which are not derived from titles and entities.
        rule: Rule by which the other edges are derived.
        entity_names: Normalised names of the entities of each passage. None if there are no entities.
    """

    stated: Edges
    rule: EdgeRule
    entity_names: Sequence[AbstractSet[str]] | None = None

    def search(self, titles: Sequence[str], texts: Sequence[str]) -> tuple[dict[str, Edges], EntityIncidence | None]:
        """Derive edges by mentions and shared entities.

        Args:
            titles: Titles of the passages. Ignored if mentions are not searched for.
            texts: Texts of the passages without titles. Ignored if mentions are not searched for.

        Returns:
            Edges by source, and the entities of each passage (None if there are no entities).
        """
        edges: dict[str, Edges] = {}
        incidence = None
        if self.rule.mention_type is not None:
            edges["mentions"] = of_type(find_mentions(titles, texts), self.rule.mention_type)
        if self.entity_names is not None:
            incidence = EntityIncidence.from_names(self.entity_names, max_share=self.rule.max_entity_share)
        if self.rule.makes_choices and incidence is not None:
            pairs, total = choose_neighbours(incidence)
            weight = shared_weight(total, incidence.num_nodes)
            edges[f"entities by {self.rule.entity_source}"] = (pairs, weight, torch.full((len(pairs),), ENTITY))
        return edges, incidence

    def join(self, passages: Passages) -> CorpusGraph:
        """Build the graph of passages with explicit edges, and with edges derived from these passages.

        Args:
            passages: Passages. They must have titles if mentions are searched for.

        Returns:
            Corpus graph.
        """
        split: list[tuple[str, str]] = []
        if self.rule.mention_type is not None:
            assert passages.title_lengths is not None
            split = [split_passage(*pair) for pair in zip(passages.texts, passages.title_lengths.tolist(), strict=True)]
        edges, incidence = self.search([title for title, _ in split], [text for _, text in split])
        return graph_of(passages, [self.stated, *edges.values()], None if self.rule.makes_choices else incidence)


@dataclass(frozen=True)
class EdgeRecipe:
    """Recipe for edges that depend on the whole corpus. They are computed again for a visible subgraph.

    Attributes:
        stated: Explicit edges. If None, all edges of the graph are explicit.
        rule: Rule by which the other edges are derived.
        entity_names: Function that returns the entities of the given passages. None if there are no entities.
        knn: Number of edges from each passage to its nearest neighbours.
        knn_below: Only passages with fewer neighbours than this get ``knn`` edges. If None, all passages get them.
    """

    stated: Edges | None
    rule: EdgeRule
    entity_names: Callable[[npt.NDArray[np.int64]], Sequence[AbstractSet[str]]] | None
    knn: int = 0
    knn_below: int | None = None

    def apply(self, subgraph: CorpusGraph, whole: CorpusGraph, principals: AbstractSet[str]) -> CorpusGraph:
        """Return a visible subgraph with the edges that are derived from its passages alone.

        Args:
            subgraph: Passages and explicit edges that the principals may see.
            whole: Whole corpus graph.
            principals: Principals of the caller.

        Returns:
            Subgraph with derived edges.
        """
        nodes = torch.arange(whole.num_nodes) if subgraph.part_of is None else subgraph.part_of[1]
        number = torch.full((whole.num_nodes,), -1)
        number[nodes] = torch.arange(len(nodes))
        stated: Edges = subgraph.typed_edges()
        if self.stated is not None:
            pairs = number[self.stated[0]]
            is_visible = (pairs >= 0).all(1)
            stated = (pairs[is_visible], self.stated[1][is_visible], self.stated[2][is_visible])
            guarded = whole.guarded
            if guarded is not None:
                allowed = guarded.select(number, guarded.allowed(principals))
                stated = joined([stated, (allowed.pairs, allowed.weight, allowed.types)])
        names = None if self.entity_names is None else self.entity_names(nodes.numpy())
        rule = self.rule
        automatic = rule.automatic
        below = subgraph.num_nodes if self.knn_below == whole.num_nodes else self.knn_below
        if automatic is not None:
            rule, stated = _decided_again(rule, automatic, stated, subgraph.passages)
            below = automatic.knn_below(subgraph.num_nodes)
        graph = DerivedEdges(stated, rule, names).join(subgraph.passages)
        graph = replace(graph, vectors=subgraph.vectors, pages=subgraph.pages, part_of=subgraph.part_of)
        if not self.knn or graph.embedding is None:
            return graph
        sparse_nodes = None if below is None else torch.nonzero(graph.degree < below).flatten()
        pairs, similarity = nearest_neighbor_edges(graph.embedding.float(), k=self.knn, nodes=sparse_nodes)
        return graph.with_edges(pairs, similarity, edge_type=SIMILARITY)


def _decided_again(
    rule: EdgeRule, automatic: AutomaticChoices, stated: Edges, passages: Passages
) -> tuple[EdgeRule, Edges]:
    """Repeat the choices of ``edges=auto`` for these passages alone, and return the rule and the explicit edges."""
    titles = map(passages.title, range(len(passages)))
    mention_type = automatic.mention_type(stated[2], titles)
    metadata = passages.metadata
    records = [{}] * len(passages) if metadata is None else map(metadata.record, range(len(passages)))
    try:
        chunks = automatic.neighbouring_chunks(records)
    except UserError:  # Two passages have the same position, so chunks cannot be ordered.
        chunks = None
    if chunks is not None:
        stated = joined([stated, chunks])
    return rule.model_copy(update={"mention_type": mention_type}), stated


def of_type(pairs: Tensor, edge_type: int) -> Edges:
    """Return edges of one type with weight 1.

    Args:
        pairs: Pairs of passages ``[M, 2]``.
        edge_type: Index in :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`.

    Returns:
        Pairs, weights and types.
    """
    return pairs, torch.ones(len(pairs)), torch.full((len(pairs),), edge_type)


def joined(parts: Iterable[Edges]) -> Edges:
    """Concatenate lists of edges.

    Args:
        parts: Lists of edges, at least one.

    Returns:
        Pairs, weights and types.
    """
    pairs, weights, types = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return pairs, weights, types


def graph_of(passages: Passages, parts: Iterable[Edges], entities: EntityIncidence | None) -> CorpusGraph:
    """Build the graph of passages with the given edges.

    Args:
        passages: Passages that become nodes.
        parts: Lists of edges, at least one.
        entities: Entities of each passage, by which passages are joined per query. None if there are none.

    Returns:
        Corpus graph.
    """
    pairs, weight, types = joined(parts)
    graph = CorpusGraph.from_edges(passages.ids, passages.texts, pairs, weight, edge_type=types)
    graph = replace(graph, passages=passages)
    return graph if entities is None else graph.with_entities(entities)
