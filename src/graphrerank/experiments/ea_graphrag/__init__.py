"""EA-GraphRAG: training of the complexity adapter, and the benchmark of the router."""
