"""KET-RAG's index: a knowledge graph skeleton and a keyword-bipartite graph."""
