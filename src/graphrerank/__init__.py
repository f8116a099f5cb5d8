"""Train, judge and serve learned graph rerankers for graph RAG."""
