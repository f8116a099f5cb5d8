"""ReTAG's retrieval of summaries and its answers."""

from graphrerank.experiments.retag.job import ReTAGSummaries

__all__ = ["ReTAGSummaries"]
