"""Lightning modules and callbacks; model, loss and measures come in from outside."""

from graphrerank.installation.extras import importing

with importing("train", "graphrerank.training"):
    from graphrerank.training.callbacks import AtomicCheckpoints, EpochTable, GradientNorm, LearningCurves, LearningRate
    from graphrerank.training.reranker_module import RerankerModule
    from graphrerank.training.training_module import TrainingModule

__all__ = [
    "AtomicCheckpoints",
    "EpochTable",
    "GradientNorm",
    "LearningCurves",
    "LearningRate",
    "RerankerModule",
    "TrainingModule",
]
