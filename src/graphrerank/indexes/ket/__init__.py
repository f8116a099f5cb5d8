"""KET-RAG's index: a knowledge-graph skeleton and a text-keyword graph."""

from graphrerank.indexes.ket.builder import KETIndexBuilder
from graphrerank.indexes.ket.chunk_graph import ChunkGraph, build_chunk_graph
from graphrerank.indexes.ket.index import KETIndex, KETSettings, Texts
from graphrerank.indexes.ket.keyword_graph import KeywordGraph
from graphrerank.indexes.ket.skeleton import Skeleton

__all__ = [
    "ChunkGraph",
    "KETIndex",
    "KETIndexBuilder",
    "KETSettings",
    "KeywordGraph",
    "Skeleton",
    "Texts",
    "build_chunk_graph",
]
