"""GraphER's tables."""

from graphrerank.experiments.grapher.job import GraphERTables

__all__ = ["GraphERTables"]
