"""Corpus graphs, candidate graphs, rankings and their algebra."""

from graphrerank.graphs.candidate_graphs import CandidateGraphs, induced_edges
from graphrerank.graphs.corpus_graph import CorpusGraph
from graphrerank.graphs.ranking import Ranking, top_k_by_node_order

__all__ = ["CandidateGraphs", "CorpusGraph", "Ranking", "induced_edges", "top_k_by_node_order"]
