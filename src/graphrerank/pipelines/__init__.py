"""Retrieval pipelines: published retrieval systems, built from a sequence of operators."""
