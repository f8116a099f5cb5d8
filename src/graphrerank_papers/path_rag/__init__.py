"""PathRAG."""
