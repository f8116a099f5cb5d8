"""ReTAG's retrieval of summaries and its answers."""

from graphrerank.experiments.retag.job import AnswerPrompts, ReTAGSummaries

__all__ = ["AnswerPrompts", "ReTAGSummaries"]
