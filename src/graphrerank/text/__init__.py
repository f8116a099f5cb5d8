"""What is done with text before any graph: names, entities and relations, the client of language models."""

from graphrerank.text.knowledge import Entity, Knowledge, KnowledgeExtractor, Relation
from graphrerank.text.language_model import LanguageModel
from graphrerank.text.names import normalize_entity

__all__ = ["Entity", "Knowledge", "KnowledgeExtractor", "LanguageModel", "Relation", "normalize_entity"]
