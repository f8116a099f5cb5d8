"""Entities of passages and the relations between them: extractors and their cache."""

from graphrerank.knowledge.knowledge_cache import KnowledgeCache
from graphrerank.knowledge.language_model_entities import LanguageModelEntityExtractor
from graphrerank.knowledge.language_model_extractor import LanguageModelKnowledgeExtractor
from graphrerank.knowledge.passage_knowledge import Entity, Knowledge, KnowledgeExtractor, Relation
from graphrerank.knowledge.pattern_entities import PatternEntityExtractor
from graphrerank.knowledge.spacy_entities import SpacyEntityExtractor
from graphrerank.knowledge.spacy_extractor import SpacyKnowledgeExtractor
from graphrerank.knowledge.two_stage_extractor import TwoStageKnowledgeExtractor

__all__ = [
    "Entity",
    "Knowledge",
    "KnowledgeCache",
    "KnowledgeExtractor",
    "LanguageModelEntityExtractor",
    "LanguageModelKnowledgeExtractor",
    "PatternEntityExtractor",
    "Relation",
    "SpacyEntityExtractor",
    "SpacyKnowledgeExtractor",
    "TwoStageKnowledgeExtractor",
]
