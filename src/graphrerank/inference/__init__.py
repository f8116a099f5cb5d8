"""Reranking with a trained model, in your code or in a pipeline over a corpus graph."""

from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.inference.reranked_list import RerankedList

__all__ = ["GraphReranker", "RerankInput", "RerankedList"]
