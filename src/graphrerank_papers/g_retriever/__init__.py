"""G-Retriever: the subgraph that connects the retrieved nodes."""
