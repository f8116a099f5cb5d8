"""The reranker within other libraries, each in a module of its own that needs that library."""
