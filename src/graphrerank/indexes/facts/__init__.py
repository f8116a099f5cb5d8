"""Facts of a corpus as a graph of entities and passages."""
