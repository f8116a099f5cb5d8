"""KET-RAG: its index, its retrieval and its experiments."""
