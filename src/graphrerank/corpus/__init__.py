"""The corpus graph: passages, edges and their types, entities, metadata, filters and permissions."""

from graphrerank.corpus.candidate_edges import candidate_edges
from graphrerank.corpus.corpus_graph import CorpusGraph
from graphrerank.corpus.entity_incidence import EntityIncidence, conceptual_edges
from graphrerank.corpus.packed_strings import PackedStrings
from graphrerank.corpus.passages import AddedTokens, Postings, TextStems, Vocabulary, WordIndex

__all__ = [
    "AddedTokens",
    "CorpusGraph",
    "EntityIncidence",
    "PackedStrings",
    "Postings",
    "TextStems",
    "Vocabulary",
    "WordIndex",
    "candidate_edges",
    "conceptual_edges",
]
