"""How near calibrated scores are to frequencies on a split."""

from math import sqrt

import torch
from torch import Tensor

from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Qrels
from graphrerank.evaluation.findings import Reliability
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.system import System
from graphrerank.graphs import Ranking
from graphrerank.graphs.calibration import Calibration
from graphrerank.metrics import brier_score, expected_calibration_error, reliability_bins

Z95 = 1.96  # the standard normal's 97.5% quantile


def labelled_scores(prepared: PreparedDataset, split: str, system: System) -> tuple[Tensor, Tensor]:
    """Score all candidates of a split's queries.

    Returns:
        ``[n]`` float32 scores, and ``[n]`` float64 labels: 1 where the candidate is relevant, else 0.
    """
    qrels = prepared.dataset.split(split)
    ranking = rerank(prepared, qrels.queries, system)
    return ranked_pairs(ranking, qrels, qrels.queries, num_nodes=prepared.dataset.graph.num_nodes)


def ranked_pairs(ranking: Ranking, qrels: Qrels, queries: Tensor, *, num_nodes: int) -> tuple[Tensor, Tensor]:
    """Flatten rankings ``[Q, K]`` of the queries ``[Q]`` int64, without padding; as :func:`labelled_scores`."""
    relevance = qrels.relevance(queries, ranking.nodes, num_nodes=num_nodes)
    ranked = ranking.nodes >= 0
    return ranking.scores[ranked], (relevance[ranked] > 0).double()


@torch.inference_mode()
def judge_reliability(system: str, calibration: Calibration, scores: Tensor, labels: Tensor) -> Reliability:
    """Compare the probabilities that a calibration gives ``[n]`` scores with the labels ``[n]``, 1 where relevant."""
    p = calibration.probabilities(scores)
    bins = reliability_bins(p, labels)
    return Reliability(
        system=system,
        method=calibration.method,
        num_pairs=len(p),
        share_relevant=float(labels.mean()),
        ece=expected_calibration_error(p, labels),
        brier=brier_score(p, labels),
        counts=tuple(bins.count.tolist()),
        probabilities=tuple(bins.probability.tolist()),
        shares=tuple(bins.share.tolist()),
    )


def wilson_interval(share: float, count: int) -> tuple[float, float]:
    """Return the 95% interval of a share.

    Source: Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927.
    """
    spread = Z95 * sqrt(share * (1 - share) / count + Z95**2 / (4 * count**2))
    middle, shrink = share + Z95**2 / (2 * count), 1 + Z95**2 / count
    return max(0.0, (middle - spread) / shrink), min(1.0, (middle + spread) / shrink)
