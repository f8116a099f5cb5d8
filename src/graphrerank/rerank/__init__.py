"""Rerank candidates with a trained model, either directly from Python or as a step of a pipeline over a corpus."""

from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.rerank.reranked_list import RerankedList

__all__ = ["GraphReranker", "RerankInput", "RerankedList"]
