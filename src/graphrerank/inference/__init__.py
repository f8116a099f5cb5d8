"""Rerank from your own code, with a trained model and nothing else; or in a pipeline over a corpus graph."""

from graphrerank.inference.adapter_scorer import AdapterScorer
from graphrerank.inference.checkpoint_scorer import CheckpointScorer
from graphrerank.inference.explanation import Explainer
from graphrerank.inference.graph_reranker import GraphReranker
from graphrerank.inference.prototype_scorer import PrototypeScorer
from graphrerank.inference.rerank_input import RerankInput
from graphrerank.inference.reranked_list import RerankedList
from graphrerank.inference.text_classifier_scorer import TextClassifierScorer

__all__ = [
    "AdapterScorer",
    "CheckpointScorer",
    "Explainer",
    "GraphReranker",
    "PrototypeScorer",
    "RerankInput",
    "RerankedList",
    "TextClassifierScorer",
]
