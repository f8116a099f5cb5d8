"""Records and protocols that every layer shares: rankings, queries, candidate graphs, retrievers, cross-encoders."""

from graphrerank.core.candidate_graphs import CandidateGraphs
from graphrerank.core.model_inputs import ModelInputs
from graphrerank.core.queries import Queries
from graphrerank.core.ranking import Ranking, top_k_by_node_order
from graphrerank.core.retriever import DTYPES, GraphHead, PairEncoder, Retriever, RetrieverFactory

__all__ = [
    "DTYPES",
    "CandidateGraphs",
    "GraphHead",
    "ModelInputs",
    "PairEncoder",
    "Queries",
    "Ranking",
    "Retriever",
    "RetrieverFactory",
    "top_k_by_node_order",
]
