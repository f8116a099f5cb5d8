"""Lightning modules and callbacks; model, loss and measures come in from outside."""

from graphrerank.extras import explained

try:
    from graphrerank.training.atomic_checkpoints import AtomicCheckpoints
    from graphrerank.training.epoch_table import EpochTable
    from graphrerank.training.learning_curves import LearningCurves
    from graphrerank.training.reranker_module import RerankerModule
except ModuleNotFoundError as error:
    raise explained(error, "graphrerank.training") from error

__all__ = ["AtomicCheckpoints", "EpochTable", "LearningCurves", "RerankerModule"]
