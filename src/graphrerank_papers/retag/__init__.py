"""ReTAG: index, retrieval and experiments."""
