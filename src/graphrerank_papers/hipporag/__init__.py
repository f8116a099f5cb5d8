"""HippoRAG and HippoRAG 2: the graph of facts and its search."""
