"""Corpus graphs, candidate graphs, rankings and their algebra."""

from graphrerank.graphs.candidate_graphs import CandidateGraphs, induced_edges
from graphrerank.graphs.corpus_graph import CorpusGraph
from graphrerank.graphs.queries import Queries
from graphrerank.graphs.ranking import Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import Retriever, RetrieverFactory

__all__ = [
    "CandidateGraphs",
    "CorpusGraph",
    "Queries",
    "Ranking",
    "Retriever",
    "RetrieverFactory",
    "induced_edges",
    "top_k_by_node_order",
]
