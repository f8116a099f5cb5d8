"""Fit the probabilities of candidates and of lists together, and measure their calibration errors."""

import logging
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from graphrerank.calibration.fitting import fit_list_confidence, fit_logistic, teach_confidence
from graphrerank.calibration.labelled_lists import LabelledLists
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.metrics import brier_score, expected_calibration_error

LOGGER = logging.getLogger(__name__)
NUM_FOLDS = 5  # number of folds of a cross-validation
TOP_RANKS = 10  # number of top passages per query in the error `ece_top`
CONFIDENCE_RANKS = (5, 10)  # ranks at which the list confidence is measured

#: Calibration of the scores and, if it could be fitted, list confidence.
FittedProbabilities = tuple[Calibration, ListConfidence | None]
#: Probabilities ``[Q, K]`` that candidates are relevant, and that the first 1 to K candidates are complete.
Probabilities = tuple[Tensor, Tensor | None]


def fit_probabilities(
    lists: Mapping[str, LabelledLists], *, name: str = "", with_confidence: bool = True
) -> FittedProbabilities:
    """Fit a calibration of the scores and, optionally, a list confidence.

    Args:
        lists: Ranked lists with judgements, by name of the data set.
        name: Name of the system, for a log message if the list confidence cannot be fitted. Empty for no message.
        with_confidence: Whether to fit a list confidence.

    Returns:
        The calibration and the list confidence, which is None if it is disabled or cannot be fitted.
    """
    calibration = fit_logistic(*_pairs(lists))
    if not with_confidence:
        return calibration, None
    try:
        return calibration, fit_list_confidence(
            {dataset: (part.probabilities(calibration), part.complete) for dataset, part in lists.items()}
        )
    except ValueError as error:
        if name:
            LOGGER.info("%s: could not fit a list confidence: %s", name, error)
        return calibration, None


def predict_probabilities(
    lists: LabelledLists, calibration: Calibration, confidence: ListConfidence | None
) -> Probabilities:
    """Predict the probabilities of ranked candidates and lists.

    Args:
        lists: Ranked lists.
        calibration: Calibration of the scores.
        confidence: List confidence. If None, the second probabilities are None.

    Returns:
        Probabilities that candidates are relevant, and that the top of each list is complete.
    """
    p = lists.probabilities(calibration)
    return p, None if confidence is None else confidence.perfect_recall(p)


def cross_validated_probabilities(lists: LabelledLists, *, with_confidence: bool) -> Probabilities:
    """Predict probabilities by five-fold cross-validation: each fold with a fit on the other folds.

    Args:
        lists: Ranked lists with judgements. List ``i`` belongs to fold ``i % 5``.
        with_confidence: Whether to fit a list confidence.

    Returns:
        Probabilities that candidates are relevant, and that the top of each list is complete. The latter are None if
        ``with_confidence`` is False, or if the list confidence of a fold cannot be fitted.
    """
    fold = torch.arange(len(lists.scores)) % NUM_FOLDS
    p, complete = torch.zeros_like(lists.scores), torch.zeros_like(lists.scores)
    for number in range(NUM_FOLDS):
        fitted = fit_probabilities({"": lists.select(fold != number)}, with_confidence=with_confidence)
        p[fold == number], fold_complete = predict_probabilities(lists.select(fold == number), *fitted)
        with_confidence = fold_complete is not None
        if fold_complete is not None:
            complete[fold == number] = fold_complete
    return p, complete if with_confidence else None


def calibration_errors(lists: LabelledLists, probabilities: Tensor, complete: Tensor | None) -> dict[str, float]:
    """Measure calibration errors over all candidates, over the top ten, and of the list confidence.

    Args:
        lists: Ranked lists with judgements.
        probabilities: Probabilities that the candidates are relevant, ``[Q, K]``.
        complete: Probabilities that the first 1 to K candidates include every relevant passage, ``[Q, K]``, or None.

    Returns:
        Expected calibration errors ``ece``, ``ece_top`` and, with ``complete``, ``ece_PR@k``; Brier score ``brier``.
    """
    ranked, labels = lists.scores.isfinite(), lists.relevant.double()
    top = ranked & (torch.arange(ranked.shape[1]) < TOP_RANKS)
    errors = {
        "ece": expected_calibration_error(probabilities[ranked], labels[ranked]),
        "ece_top": expected_calibration_error(probabilities[top], labels[top]),
        "brier": brier_score(probabilities[ranked], labels[ranked]),
    }
    for rank in CONFIDENCE_RANKS:
        if complete is not None and rank <= complete.shape[1]:
            is_complete = lists.complete[:, rank - 1].double()
            errors[f"ece_PR@{rank}"] = expected_calibration_error(complete[:, rank - 1], is_complete)
    return errors


def list_errors(errors: Mapping[str, float]) -> dict[str, float]:
    """Select the errors of the list confidence.

    Args:
        errors: Result of :func:`calibration_errors`.

    Returns:
        Expected calibration errors by measure, such as ``PR@5``.
    """
    return {name.removeprefix("ece_"): error for name, error in errors.items() if name.startswith("ece_PR")}


def manifest_entries(
    lists: Mapping[str, LabelledLists], split: str, calibration: Calibration, confidence: ListConfidence | None
) -> dict[str, Any]:
    """Return the manifest entries: the fitted models, the data they were fitted on, and the errors on this data.

    Args:
        lists: Ranked lists with judgements that were used for the fit, by name of the data set.
        split: Name of the split of the judgements.
        calibration: Fitted calibration.
        confidence: Fitted list confidence, or None.

    Returns:
        Entries ``calibration`` and, with ``confidence``, ``list_confidence``.
    """
    scores, labels = _pairs(lists)
    p = calibration.probabilities(scores)
    errors = {
        name: calibration_errors(dataset, *predict_probabilities(dataset, calibration, confidence))
        for name, dataset in lists.items()
    }
    fitted = {
        "datasets": list(lists),
        "split": split,
        "pairs": len(labels),
        "ece": expected_calibration_error(p, labels),
        "brier": brier_score(p, labels),
        "share_relevant": float(labels.mean()),
        "ece_by_dataset": {name: dataset_errors["ece"] for name, dataset_errors in errors.items()},
    }
    entries: dict[str, Any] = {"calibration": {**calibration.model_dump(mode="json"), "fitted": fitted}}
    if confidence is not None:
        fitted_on = teach_confidence({name: dataset.complete for name, dataset in lists.items()})
        fitted = {
            "datasets": fitted_on,
            "split": split,
            "queries": sum(len(lists[name].scores) for name in fitted_on),
            "ece_by_dataset": {name: list_errors(dataset_errors) for name, dataset_errors in errors.items()},
        }
        entries["list_confidence"] = {**confidence.model_dump(mode="json"), "fitted": fitted}
    return entries


def _pairs(lists: Mapping[str, LabelledLists]) -> tuple[Tensor, ...]:
    """Return the scores and the labels of all candidates of all data sets."""
    return tuple(map(torch.cat, zip(*(dataset.pairs for dataset in lists.values()), strict=True)))
