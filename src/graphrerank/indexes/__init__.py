"""Indexes that are built offline over a corpus: KET-RAG's."""

from graphrerank.indexes.chunk_graph import ChunkGraph, build_chunk_graph, core_chunks, keyword_incidence, page_rank
from graphrerank.indexes.chunks import Chunks, TokenStream

__all__ = ["ChunkGraph", "Chunks", "TokenStream", "build_chunk_graph", "core_chunks", "keyword_incidence", "page_rank"]
