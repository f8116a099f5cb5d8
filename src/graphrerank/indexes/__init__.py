"""Indexes that are built offline over a corpus: KET-RAG's, and the graph of facts."""

from graphrerank.indexes.chunks import Chunks, TokenStream
from graphrerank.indexes.encode import IndexEncoder
from graphrerank.indexes.facts.builder import FactGraphBuilder
from graphrerank.indexes.facts.fact_graph import FactGraph, FactGraphSettings
from graphrerank.indexes.facts.facts import Facts, merge_knowledge
from graphrerank.indexes.facts.synonyms import synonym_edges
from graphrerank.indexes.ket.builder import KETIndexBuilder, prompts_of
from graphrerank.indexes.ket.chunk_graph import ChunkGraph, build_chunk_graph, core_chunks, keyword_incidence, page_rank
from graphrerank.indexes.ket.costs import Prices, Tokens, keyword_graph_tokens, knowledge_graph_tokens
from graphrerank.indexes.ket.index import KETIndex, KETSettings, Texts
from graphrerank.indexes.ket.keyword_graph import KeywordGraph, build_keyword_graph, keyword_sentences
from graphrerank.indexes.ket.report import KETReport
from graphrerank.indexes.ket.skeleton import Skeleton, build_skeleton, rewire
from graphrerank.indexes.retag.builder import ReTAGIndexBuilder
from graphrerank.indexes.retag.communities import Communities, Rows
from graphrerank.indexes.retag.difference import IndexDifference, index_difference
from graphrerank.indexes.retag.index import ReTAGIndex, ReTAGSettings, Sentences, Subgraph
from graphrerank.indexes.retag.report import ReTAGReport
from graphrerank.indexes.retag.topics import Topics

__all__ = [
    "ChunkGraph",
    "Chunks",
    "Communities",
    "FactGraph",
    "FactGraphBuilder",
    "FactGraphSettings",
    "Facts",
    "IndexDifference",
    "IndexEncoder",
    "KETIndex",
    "KETIndexBuilder",
    "KETReport",
    "KETSettings",
    "KeywordGraph",
    "Prices",
    "ReTAGIndex",
    "ReTAGIndexBuilder",
    "ReTAGReport",
    "ReTAGSettings",
    "Rows",
    "Sentences",
    "Skeleton",
    "Subgraph",
    "Texts",
    "TokenStream",
    "Tokens",
    "Topics",
    "build_chunk_graph",
    "build_keyword_graph",
    "build_skeleton",
    "core_chunks",
    "index_difference",
    "keyword_graph_tokens",
    "keyword_incidence",
    "keyword_sentences",
    "knowledge_graph_tokens",
    "merge_knowledge",
    "page_rank",
    "prompts_of",
    "rewire",
    "synonym_edges",
]
