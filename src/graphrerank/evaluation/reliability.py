"""Measure the calibration of probabilities on the judgements of a split."""

from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor

from graphrerank.calibration.list_confidence import ListConfidence
from graphrerank.calibration.logistic import Calibration
from graphrerank.core import Ranking
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.qrels import Qrels
from graphrerank.evaluation.records import ListReliability, Reliability
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import System
from graphrerank.metrics import area_under_roc, brier_score, expected_calibration_error, reliability_bins

CONFIDENCE_RANKS = (5, 10)


@dataclass(frozen=True, eq=False)
class LabelledLists:
    """Rankings of queries with their judgements.

    Attributes:
        scores: ``[Q, K]`` float32, best first, with padding ``-inf``.
        relevant: ``[Q, K]`` bool, True for relevant passages.
        num_relevant: ``[Q]`` int64, number of relevant passages of each query, including passages that are not ranked.
    """

    scores: Tensor
    relevant: Tensor
    num_relevant: Tensor

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Scores of all ranked passages, ``[n]`` float32, and their labels, ``[n]`` float64, 1 for relevant, else 0."""
        ranked = self.scores.isfinite()
        return self.scores[ranked], self.relevant[ranked].double()

    @property
    def complete(self) -> Tensor:
        """``[Q, K]`` bool: entry ``k - 1`` is True if the top ``k`` passages include every relevant passage."""
        return self.relevant.cumsum(1) == self.num_relevant.unsqueeze(1)

    def select(self, rows: slice | Tensor) -> "LabelledLists":
        """Return the lists of a subset of the queries.

        Args:
            rows: Slice, mask ``[Q]`` or row indices of the queries.

        Returns:
            Lists of the selected queries.
        """
        return LabelledLists(self.scores[rows], self.relevant[rows], self.num_relevant[rows])

    def probabilities(self, calibration: Calibration) -> Tensor:
        """Convert the scores to probabilities of relevance.

        Args:
            calibration: Map from scores to probabilities.

        Returns:
            ``[Q, K]`` float32, 0 for padding.
        """
        ranked = self.scores.isfinite()
        return calibration.probabilities(self.scores.masked_fill(~ranked, 0)).masked_fill(~ranked, 0)


def labelled_lists(prepared: PreparedDataset, split: str, system: System) -> LabelledLists:
    """Rank all candidates of a split's queries, and look up their judgements.

    Args:
        prepared: Data set with the candidates of its queries.
        split: Split whose queries and judgements are used.
        system: System that scores the candidates.

    Returns:
        Rankings with their judgements.
    """
    qrels = prepared.dataset.split(split)
    ranking = rerank(prepared, qrels.queries, system)
    return label_ranking(ranking, qrels, qrels.queries, num_nodes=prepared.dataset.graph.num_nodes)


def label_ranking(ranking: Ranking, qrels: Qrels, queries: Tensor, *, num_nodes: int) -> LabelledLists:
    """Look up the judgements of ranked passages.

    Args:
        ranking: Ranking ``[Q, K]``.
        qrels: Judgements of the ranked queries.
        queries: Indices of the queries, ``[Q]`` int64.
        num_nodes: Number of passages in the corpus.

    Returns:
        Ranking with its judgements.
    """
    relevant = qrels.relevance(queries, ranking.nodes, num_nodes=num_nodes) > 0
    return LabelledLists(ranking.scores, relevant, (qrels.gains(queries) > 0).sum(1))


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
