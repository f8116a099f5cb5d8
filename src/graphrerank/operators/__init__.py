"""Frozen operators, one file per published operator."""

from graphrerank.operators.bm25 import BM25
from graphrerank.operators.bm25_retriever import BM25Retriever
from graphrerank.operators.classification_head import ClassificationHead
from graphrerank.operators.corpus_ppr import CorpusPPR
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.operators.dense import DenseRetriever
from graphrerank.operators.expand import ExpandRetriever
from graphrerank.operators.fact_rerank import FactReranker, LanguageModelFactFilter, PairFactReranker
from graphrerank.operators.fact_seeds import entity_seeds, find_facts
from graphrerank.operators.fusion import weighted_rank_fusion
from graphrerank.operators.gcs import GCS, graph_cohesive_smoothing
from graphrerank.operators.granker import neighbour_context, smooth_vectors
from graphrerank.operators.hybrid import HybridRetriever
from graphrerank.operators.hybrid_expand import HybridExpandRetriever
from graphrerank.operators.hyde import HyDE, TextEncoder
from graphrerank.operators.ircot import IRCoT
from graphrerank.operators.lancedb_retriever import LanceDBRetriever
from graphrerank.operators.late_interaction import LateInteractionRetriever
from graphrerank.operators.pcst import PrizeCollectingSteinerTree
from graphrerank.operators.ppr import PPR, personalized_pagerank
from graphrerank.operators.qdrant_retriever import QdrantRetriever
from graphrerank.operators.splade import SpladeRetriever
from graphrerank.operators.stex import semantic_topological_expansion

__all__ = [
    "BM25",
    "GCS",
    "PPR",
    "BM25Retriever",
    "ClassificationHead",
    "CorpusPPR",
    "CrossEncoder",
    "DenseRetriever",
    "ExpandRetriever",
    "FactReranker",
    "HyDE",
    "HybridExpandRetriever",
    "HybridRetriever",
    "IRCoT",
    "LanceDBRetriever",
    "LanguageModelFactFilter",
    "LateInteractionRetriever",
    "PairFactReranker",
    "PrizeCollectingSteinerTree",
    "QdrantRetriever",
    "SpladeRetriever",
    "TextEncoder",
    "entity_seeds",
    "find_facts",
    "graph_cohesive_smoothing",
    "neighbour_context",
    "personalized_pagerank",
    "semantic_topological_expansion",
    "smooth_vectors",
    "weighted_rank_fusion",
]
