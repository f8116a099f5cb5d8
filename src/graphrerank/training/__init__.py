"""Training with PyTorch Lightning: modules, callbacks, and the steps from data sets to a calibrated reranker."""

from graphrerank.installation.extras import importing

with importing("train", "graphrerank.training"):
    from graphrerank.training.callbacks import (
        AtomicCheckpoints,
        EpochTable,
        GradientNorm,
        LearningCurves,
        LearningRate,
        TailAveraging,
    )
    from graphrerank.training.predictions import RankedPassages, TrecRunWriter
    from graphrerank.training.reranker_module import RerankerModule
    from graphrerank.training.training_checks import TrainingChecks
    from graphrerank.training.training_module import TrainingModule
    from graphrerank.training.weighted_loss import WeightedLoss

__all__ = [
    "AtomicCheckpoints",
    "EpochTable",
    "GradientNorm",
    "LearningCurves",
    "LearningRate",
    "RankedPassages",
    "RerankerModule",
    "TailAveraging",
    "TrainingChecks",
    "TrainingModule",
    "TrecRunWriter",
    "WeightedLoss",
]
