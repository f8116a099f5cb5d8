"""Records of the calibration of all systems of an evaluation, for reports."""

from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from graphrerank._moved import moved_names
from graphrerank.calibration.labelled_lists import LabelledLists
from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.calibration.probabilities import CONFIDENCE_RANKS
from graphrerank.data.qrels import Qrels
from graphrerank.evaluation.records import ListReliability, Reliability
from graphrerank.evaluation.reranking import label_ranking
from graphrerank.evaluation.systems import RankedDataset
from graphrerank.metrics import area_under_roc, brier_score, expected_calibration_error, reliability_bins

__getattr__ = moved_names(__name__)


@dataclass(frozen=True)
class ReliabilityRecords:
    """Calibration of all calibrated systems.

    Attributes:
        candidates: Calibration of the probabilities of relevance.
        lists: Calibration of the probabilities that the top of a list contains every relevant passage.
    """

    candidates: list[Reliability]
    lists: list[ListReliability]


def measure_reliability(ranked: RankedDataset, qrels: Qrels) -> ReliabilityRecords:
    """Measure the calibration of the systems whose scores are calibrated.

    Args:
        ranked: Rankings of all systems.
        qrels: Judgements of the split.

    Returns:
        One record per calibrated system, and one per rank for systems with ``list_confidence``.
    """
    records = ReliabilityRecords([], [])
    for system in ranked.systems:
        if system.calibration is None:
            continue
        lists = label_ranking(system.ranking, qrels, ranked.queries, num_nodes=ranked.dataset.graph.num_nodes)
        records.candidates.append(judge_reliability(system.name, system.calibration, *lists.pairs))
        if system.confidence is not None:
            records.lists.extend(judge_confidence(system.name, system.calibration, system.confidence, lists))
    return records


@torch.inference_mode()
def judge_reliability(system: str, calibration: Calibration, scores: Tensor, labels: Tensor) -> Reliability:
    """Measure the calibration of the probabilities of relevance.

    Args:
        system: Name of the system.
        calibration: Map from scores to probabilities.
        scores: ``[n]`` scores of candidates.
        labels: ``[n]`` labels, 1 for relevant candidates and 0 for all others.

    Returns:
        Calibration errors, and the bins of a reliability diagram.
    """
    p = calibration.probabilities(scores)
    errors = float(labels.mean()), expected_calibration_error(p, labels), brier_score(p, labels)
    bins = [tuple(column.tolist()) for column in reliability_bins(p, labels)]
    return Reliability(system, calibration.method, len(p), *errors, *bins)


@torch.inference_mode()
def judge_confidence(
    system: str, calibration: Calibration, confidence: ListConfidence, lists: LabelledLists
) -> list[ListReliability]:
    """Measure the calibration of the probabilities that the top of a list contains every relevant passage.

    Args:
        system: Name of the system.
        calibration: Map from scores to probabilities of relevance.
        confidence: Map from these probabilities to the probability that a list is complete.
        lists: Rankings with their judgements.

    Returns:
        One record for each of ``CONFIDENCE_RANKS`` that the lists reach.
    """
    p = confidence.perfect_recall(lists.probabilities(calibration))
    records = []
    for rank in (rank for rank in CONFIDENCE_RANKS if rank <= p.shape[1]):
        predicted, labels = p[:, rank - 1], lists.complete[:, rank - 1].double()
        share, mean = float(labels.mean()), float(predicted.double().mean())
        auc = area_under_roc(predicted, labels) if 0 < share < 1 else nan
        errors = expected_calibration_error(predicted, labels), brier_score(predicted, labels)
        records.append(ListReliability(system, f"PR@{rank}", len(labels), share, mean, *errors, auc))
    return records
