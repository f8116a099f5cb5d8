"""Lightning modules and callbacks; model, loss and measures come in from outside."""

from graphrerank.extras import explained

try:
    from graphrerank.training.adapter_calibration import Calibration, calibrate
    from graphrerank.training.adapter_classifiers import Classifier, default_classifiers
    from graphrerank.training.adapter_fit import AdapterModule, AdapterSettings, fit_adapter
    from graphrerank.training.adapter_rows import LabelledRows
    from graphrerank.training.adapter_thresholds import ThresholdChoice, choose_thresholds, draw_thresholds
    from graphrerank.training.adapter_validation import (
        comparison_table,
        draw_learning_curve,
        learning_curve,
        learning_curve_table,
        nested_cross_validation,
    )
    from graphrerank.training.atomic_checkpoints import AtomicCheckpoints
    from graphrerank.training.epoch_table import EpochTable
    from graphrerank.training.learning_curves import LearningCurves
    from graphrerank.training.list_confidence import fit_list_confidence, teach_confidence
    from graphrerank.training.reranker_module import RerankerModule
    from graphrerank.training.score_calibration import calibration_method, fit_isotonic, fit_logistic
except ModuleNotFoundError as error:
    raise explained(error, "graphrerank.training") from error

__all__ = [
    "AdapterModule",
    "AdapterSettings",
    "AtomicCheckpoints",
    "Calibration",
    "Classifier",
    "EpochTable",
    "LabelledRows",
    "LearningCurves",
    "RerankerModule",
    "ThresholdChoice",
    "calibrate",
    "calibration_method",
    "choose_thresholds",
    "comparison_table",
    "default_classifiers",
    "draw_learning_curve",
    "draw_thresholds",
    "fit_adapter",
    "fit_isotonic",
    "fit_list_confidence",
    "fit_logistic",
    "learning_curve",
    "learning_curve_table",
    "nested_cross_validation",
    "teach_confidence",
]
