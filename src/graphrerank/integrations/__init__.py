"""The reranker in other libraries, one module per library, which must be installed."""
