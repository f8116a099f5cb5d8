"""Retrieval from ReTAG's index."""

from graphrerank.pipelines.retag.keywords import ExtractiveKeywords, GeneratedKeywords, SummarySentences
from graphrerank.pipelines.retag.retrieval import ReTAGRetrieval, ReTAGSearchSettings, RetrievedSummaries
from graphrerank.pipelines.retag.routing import route_to_topics
from graphrerank.pipelines.retag.search import ReTAGSearch
from graphrerank.pipelines.retag.setup import ReTAGSetup
from graphrerank.pipelines.retag.summaries import LevelSummaries

__all__ = [
    "ExtractiveKeywords",
    "GeneratedKeywords",
    "LevelSummaries",
    "ReTAGRetrieval",
    "ReTAGSearch",
    "ReTAGSearchSettings",
    "ReTAGSetup",
    "RetrievedSummaries",
    "SummarySentences",
    "route_to_topics",
]
