"""Edges from the passages themselves: mentions, entities, neighbouring chunks, nearest vectors."""
