"""Lightning modules and callbacks; model, loss and measures come in from outside."""

from graphrerank.training.learning_curves import LearningCurves
from graphrerank.training.reranker_module import RerankerModule

__all__ = ["LearningCurves", "RerankerModule"]
