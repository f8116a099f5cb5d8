"""Calibrate what was trained, and judge how well that holds."""

from collections.abc import Mapping
from typing import Any

import torch

from graphrerank.data import PreparedDataset, RetrievalDataset
from graphrerank.evaluation import System
from graphrerank.evaluation.findings import Reliability
from graphrerank.evaluation.reliability import judge_reliability, labelled_scores, ranked_pairs
from graphrerank.graphs import Ranking
from graphrerank.graphs.calibration import read_calibration
from graphrerank.models import Checkpoint
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


def reliability_of(
    dataset: RetrievalDataset, split: str, rankings: Mapping[str, Ranking], checkpoints: Mapping[str, Checkpoint]
) -> list[Reliability]:
    """Hold the probabilities of calibrated checkpoints against a split's judgements; the others have none.

    Args:
        dataset: The data set.
        split: The split.
        rankings: By system, a row per query of the split, ascending.
        checkpoints: By system.

    Raises:
        ValueError: If a manifest holds a calibration that cannot be read.
    """
    found = []
    for name, loaded in checkpoints.items():
        calibration = read_calibration(loaded.manifest)
        if calibration is not None and name in rankings:
            pairs = ranked_pairs(rankings[name], dataset.split(split), num_nodes=dataset.graph.num_nodes)
            found.append(judge_reliability(name, calibration, *pairs))
    return found
