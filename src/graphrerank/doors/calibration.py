"""Calibrate what was trained, on the validation splits of the data sets that it was trained on."""

from collections.abc import Mapping
from typing import Any

import torch

from graphrerank.data import PreparedDataset
from graphrerank.evaluation import System
from graphrerank.evaluation.reliability import judge_reliability, labelled_scores
from graphrerank.training import calibration_method


def calibrate_system(method: str, parts: Mapping[str, PreparedDataset], split: str, system: System) -> dict[str, Any]:
    """Fit what turns a system's scores into probabilities of relevance, on all candidates of all data sets together.

    Args:
        method: ``logistic`` or ``isotonic``.
        parts: The data sets.
        split: The split of each to fit on.
        system: What scores.

    Returns:
        What a manifest holds as ``calibration``, with what it was fitted on and how well it fits there.
    """
    pairs = [labelled_scores(part, split, system) for part in parts.values()]
    scores, labels = (torch.cat(column) for column in zip(*pairs, strict=True))
    calibration = calibration_method(method)(scores, labels)
    found = judge_reliability(system.name, calibration, scores, labels)
    fitted = {"datasets": list(parts), "split": split, "pairs": found.num_pairs, "ece": found.ece, "brier": found.brier}
    return {**calibration.to_json(), "fitted": fitted | {"share_relevant": found.share_relevant}}
