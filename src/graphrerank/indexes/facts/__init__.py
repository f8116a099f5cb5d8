"""Graphs of a corpus's entities and passages, linked by facts."""

from graphrerank.indexes.facts.builder import FactGraphBuilder
from graphrerank.indexes.facts.fact_graph import FactGraph, FactGraphSettings
from graphrerank.indexes.facts.facts import merge_knowledge
from graphrerank.indexes.facts.synonyms import synonym_edges

__all__ = ["FactGraph", "FactGraphBuilder", "FactGraphSettings", "merge_knowledge", "synonym_edges"]
