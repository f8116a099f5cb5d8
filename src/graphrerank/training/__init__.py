"""Lightning modules and callbacks; model, loss and measures come in from outside."""

from graphrerank.extras import explained

try:
    from graphrerank.training.callbacks import AtomicCheckpoints, EpochTable, LearningCurves
    from graphrerank.training.reranker_module import RerankerModule
except ModuleNotFoundError as error:
    raise explained(error, "graphrerank.training") from error

__all__ = ["AtomicCheckpoints", "EpochTable", "LearningCurves", "RerankerModule"]
