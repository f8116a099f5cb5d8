"""Retrieval over a ReTAG index."""
