"""The corpus graph: passages, edges and their types, entities, metadata, filters and permissions."""

from graphrerank.corpus.candidate_edges import CandidateEdges, candidate_edges
from graphrerank.corpus.corpus_graph import CorpusGraph
from graphrerank.corpus.edge_lists import TypedEdges
from graphrerank.corpus.entity_incidence import EntityIncidence, conceptual_edges
from graphrerank.corpus.inverted_index import AddedTokens, Postings, TextStems, Vocabulary, WordIndex
from graphrerank.corpus.packed_strings import PackedStrings

__all__ = [
    "AddedTokens",
    "CandidateEdges",
    "CorpusGraph",
    "EntityIncidence",
    "PackedStrings",
    "Postings",
    "TextStems",
    "TypedEdges",
    "Vocabulary",
    "WordIndex",
    "candidate_edges",
    "conceptual_edges",
]
