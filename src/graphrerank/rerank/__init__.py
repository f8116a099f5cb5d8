"""Reranking with a trained model, in your code or in a pipeline over a corpus graph."""

from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.rerank.reranked_list import RerankedList

__all__ = ["GraphReranker", "RerankInput", "RerankedList"]
