"""Parts that several indexes share: stages on disk, encoding, the knowledge graph, summaries."""
