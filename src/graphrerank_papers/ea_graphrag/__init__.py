"""EA-GraphRAG: syntax, the complexity adapter with its training, and the routing between two paths."""
