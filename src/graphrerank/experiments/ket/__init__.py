"""KET-RAG's solutions, sweeps and rerankers."""
