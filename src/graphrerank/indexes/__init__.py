"""Indexes that are built offline over a corpus: KET-RAG's, and the graph of facts."""

from graphrerank.indexes.chunk_graph import ChunkGraph, build_chunk_graph, core_chunks, keyword_incidence, page_rank
from graphrerank.indexes.chunks import Chunks, TokenStream
from graphrerank.indexes.communities import Communities, Rows
from graphrerank.indexes.costs import Prices, Tokens, keyword_graph_tokens, knowledge_graph_tokens
from graphrerank.indexes.fact_graph import FactGraph, FactGraphSettings
from graphrerank.indexes.fact_graph_builder import FactGraphBuilder
from graphrerank.indexes.facts import Facts, merge_knowledge
from graphrerank.indexes.ket_builder import IndexEncoder, KETIndexBuilder, prompts_of
from graphrerank.indexes.ket_index import KETIndex, KETSettings, Texts
from graphrerank.indexes.ket_report import KETReport
from graphrerank.indexes.keyword_graph import KeywordGraph, build_keyword_graph, keyword_sentences
from graphrerank.indexes.retag_builder import ReTAGIndexBuilder
from graphrerank.indexes.retag_difference import IndexDifference, index_difference
from graphrerank.indexes.retag_index import ReTAGIndex, ReTAGSettings, Sentences, Subgraph
from graphrerank.indexes.retag_report import ReTAGReport
from graphrerank.indexes.skeleton import Skeleton, build_skeleton, rewire
from graphrerank.indexes.synonyms import synonym_edges
from graphrerank.indexes.topics import Topics

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
