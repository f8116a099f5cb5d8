"""Retrieval over a KET-RAG index."""
