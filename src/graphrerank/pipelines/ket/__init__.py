"""Retrieval from KET-RAG's index."""

from graphrerank.pipelines.ket.rerank import chunk_corpus, pack_chunks
from graphrerank.pipelines.ket.retrieval import SOLUTIONS, Contexts, KETRetrieval, find_solution
from graphrerank.pipelines.ket.search import KETSearch

__all__ = [
    "SOLUTIONS",
    "Contexts",
    "KETRetrieval",
    "KETSearch",
    "chunk_corpus",
    "find_solution",
    "pack_chunks",
]
