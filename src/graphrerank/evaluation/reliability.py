"""How near calibrated scores are to frequencies on a split."""

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
    """Rankings of queries with their judgements."""

    scores: Tensor  # `[Q, K]` float32, best first; -inf where padded
    relevant: Tensor  # `[Q, K]` bool, whether the passage is relevant
    num_relevant: Tensor  # `[Q]` int64, relevant passages of the query, ranked or not

    @property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """All scores, ``[n]`` float32 without padding, and their labels, ``[n]`` float64: 1 where relevant, else 0."""
        ranked = self.scores.isfinite()
        return self.scores[ranked], self.relevant[ranked].double()

    @property
    def complete(self) -> Tensor:
        """``[Q, K]`` bool: whether all relevant passages are among the first 1, 2, ..., K."""
        return self.relevant.cumsum(1) == self.num_relevant.unsqueeze(1)

    def select(self, rows: slice | Tensor) -> "LabelledLists":
        """Keep some of the queries."""
        return LabelledLists(self.scores[rows], self.relevant[rows], self.num_relevant[rows])

    def probabilities(self, calibration: Calibration) -> Tensor:
        """Calibrate the scores, ``[Q, K]`` float32; 0 where padded."""
        ranked = self.scores.isfinite()
        return calibration.probabilities(self.scores.masked_fill(~ranked, 0)).masked_fill(~ranked, 0)


def labelled_lists(prepared: PreparedDataset, split: str, system: System) -> LabelledLists:
    """Rank all candidates of a split's queries."""
    qrels = prepared.dataset.split(split)
    ranking = rerank(prepared, qrels.queries, system)
    return label_ranking(ranking, qrels, qrels.queries, num_nodes=prepared.dataset.graph.num_nodes)


def label_ranking(ranking: Ranking, qrels: Qrels, queries: Tensor, *, num_nodes: int) -> LabelledLists:
    """Look up the judgements of rankings ``[Q, K]`` of the queries ``[Q]`` int64."""
    relevant = qrels.relevance(queries, ranking.nodes, num_nodes=num_nodes) > 0
    return LabelledLists(ranking.scores, relevant, (qrels.gains(queries) > 0).sum(1))


@torch.inference_mode()
def judge_reliability(system: str, calibration: Calibration, scores: Tensor, labels: Tensor) -> Reliability:
    """Compare the probabilities that a calibration gives ``[n]`` scores with the labels ``[n]``, 1 where relevant."""
    p = calibration.probabilities(scores)
    errors = float(labels.mean()), expected_calibration_error(p, labels), brier_score(p, labels)
    bins = [tuple(column.tolist()) for column in reliability_bins(p, labels)]
    return Reliability(system, calibration.method, len(p), *errors, *bins)


@torch.inference_mode()
def judge_confidence(
    system: str, calibration: Calibration, confidence: ListConfidence, lists: LabelledLists
) -> list[ListReliability]:
    """Compare how likely the top of each list is complete with how often it is, at ``CONFIDENCE_RANKS``."""
    p = confidence.perfect_recall(lists.probabilities(calibration))
    found = []
    for rank in (rank for rank in CONFIDENCE_RANKS if rank <= p.shape[1]):
        at, labels = p[:, rank - 1], lists.complete[:, rank - 1].double()
        share = float(labels.mean())
        auc = area_under_roc(at, labels) if 0 < share < 1 else nan
        errors = expected_calibration_error(at, labels), brier_score(at, labels)
        found.append(ListReliability(system, f"PR@{rank}", len(labels), share, float(at.double().mean()), *errors, auc))
    return found
