"""Corpus graphs, candidate graphs, rankings and their algebra."""

from graphrerank.graphs.candidate_graphs import CandidateGraphs, candidate_edges
from graphrerank.graphs.corpus_graph import CorpusGraph
from graphrerank.graphs.entity_incidence import EntityIncidence, conceptual_edges
from graphrerank.graphs.model_inputs import ModelInputs
from graphrerank.graphs.packed_strings import PackedStrings
from graphrerank.graphs.passages import AddedTokens, Postings, TextStems, Vocabulary, WordIndex
from graphrerank.graphs.queries import Queries
from graphrerank.graphs.ranking import Ranking, top_k_by_node_order
from graphrerank.graphs.retriever import DTYPES, GraphHead, PairEncoder, Retriever, RetrieverFactory

__all__ = [
    "DTYPES",
    "AddedTokens",
    "CandidateGraphs",
    "CorpusGraph",
    "EntityIncidence",
    "GraphHead",
    "ModelInputs",
    "PackedStrings",
    "PairEncoder",
    "Postings",
    "Queries",
    "Ranking",
    "Retriever",
    "RetrieverFactory",
    "TextStems",
    "Vocabulary",
    "WordIndex",
    "candidate_edges",
    "conceptual_edges",
    "top_k_by_node_order",
]
