"""Indexes of a corpus: fact graphs, knowledge graphs, summary trees, KET-RAG's graphs and ReTAG's topics."""

from graphrerank.indexes.encode import IndexEncoder
from graphrerank.indexes.facts import FactGraph, FactGraphBuilder, FactGraphSettings
from graphrerank.indexes.ket import KETIndex, KETIndexBuilder, KETSettings
from graphrerank.indexes.knowledge_graph import KnowledgeGraph, KnowledgeGraphBuilder
from graphrerank.indexes.retag import ReTAGIndex, ReTAGIndexBuilder, ReTAGPrompts, ReTAGSettings
from graphrerank.indexes.summary_tree import SummaryTree, SummaryTreeBuilder, SummaryTreeSettings

__all__ = [
    "FactGraph",
    "FactGraphBuilder",
    "FactGraphSettings",
    "IndexEncoder",
    "KETIndex",
    "KETIndexBuilder",
    "KETSettings",
    "KnowledgeGraph",
    "KnowledgeGraphBuilder",
    "ReTAGIndex",
    "ReTAGIndexBuilder",
    "ReTAGPrompts",
    "ReTAGSettings",
    "SummaryTree",
    "SummaryTreeBuilder",
    "SummaryTreeSettings",
]
