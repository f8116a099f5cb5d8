"""Edges from the passages themselves: mentions, entities, neighbouring chunks, nearest vectors."""

from graphrerank.data.enrichment.adjacency import adjacency_edges
from graphrerank.data.enrichment.chunker import Chunk, chunk_document
from graphrerank.data.enrichment.citations import CitationDetector, CitationPatterns, LanguageModelCitations, Reference
from graphrerank.data.enrichment.entities import EntityExtractor, read_entities
from graphrerank.data.enrichment.entity_cache import EntityCache
from graphrerank.data.enrichment.incidence import entity_incidence
from graphrerank.data.enrichment.knn import nearest_neighbor_edges
from graphrerank.data.enrichment.language_model_extractor import LanguageModelExtractor
from graphrerank.data.enrichment.mentions import MentionStats, mention_edges
from graphrerank.data.enrichment.spacy_extractor import SpacyExtractor

__all__ = [
    "Chunk",
    "CitationDetector",
    "CitationPatterns",
    "EntityCache",
    "EntityExtractor",
    "LanguageModelCitations",
    "LanguageModelExtractor",
    "MentionStats",
    "Reference",
    "SpacyExtractor",
    "adjacency_edges",
    "chunk_document",
    "entity_incidence",
    "mention_edges",
    "nearest_neighbor_edges",
    "read_entities",
]
