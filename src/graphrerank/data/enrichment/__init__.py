"""Edges from the passages themselves: mentions, entities, neighbouring chunks, nearest vectors."""

from graphrerank.data.enrichment.adjacency import adjacency_edges
from graphrerank.data.enrichment.chunker import Chunk, chunk_document
from graphrerank.data.enrichment.citations import CitationPatterns, LanguageModelCitations, Reference
from graphrerank.data.enrichment.incidence import entity_incidence
from graphrerank.data.enrichment.knn import nearest_neighbor_edges
from graphrerank.data.enrichment.mentions import mention_edges
from graphrerank.data.enrichment.random_edges import random_edges
from graphrerank.data.enrichment.shared_entities import shared_entity_edges

__all__ = [
    "Chunk",
    "CitationPatterns",
    "LanguageModelCitations",
    "Reference",
    "adjacency_edges",
    "chunk_document",
    "entity_incidence",
    "mention_edges",
    "nearest_neighbor_edges",
    "random_edges",
    "shared_entity_edges",
]
