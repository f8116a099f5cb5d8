"""ReTAG's index: topics, the communities of each topic's entity graph, and a summary of every community."""

from graphrerank.indexes.retag.builder import ReTAGIndexBuilder
from graphrerank.indexes.retag.difference import index_difference
from graphrerank.indexes.retag.generative import ReTAGPrompts
from graphrerank.indexes.retag.index import ReTAGIndex, ReTAGSettings, Sentences, Subgraph
from graphrerank.indexes.retag.report import ReTAGReport
from graphrerank.indexes.retag.topics import Topics

__all__ = [
    "ReTAGIndex",
    "ReTAGIndexBuilder",
    "ReTAGPrompts",
    "ReTAGReport",
    "ReTAGSettings",
    "Sentences",
    "Subgraph",
    "Topics",
    "index_difference",
]
