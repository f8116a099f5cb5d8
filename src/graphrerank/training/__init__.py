"""Lightning modules; model, loss and measures come in from outside."""

from graphrerank.training.reranker_module import RerankerModule

__all__ = ["RerankerModule"]
