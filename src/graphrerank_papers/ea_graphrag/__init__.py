"""EA-GraphRAG: syntax features, the complexity adapter and its training, and routing between two retrieval paths."""
