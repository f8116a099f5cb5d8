"""All measures as classes of torchmetrics, which accumulate over batches and processes.

The functions of :mod:`graphrerank.metrics` score a batch. These classes also sum over batches and, in distributed
training, over processes, so they can be logged by any Lightning module and combined in a
``torchmetrics.MetricCollection``. This module is imported on its own, because torchmetrics takes seconds to import:
``from graphrerank.metrics.torchmetrics_classes import NormalizedDCG``.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import dim_zero_cat

from graphrerank.corpus import CorpusGraph
from graphrerank.metrics.calibration import NUM_BINS, area_under_roc, bin_sums, brier_score
from graphrerank.metrics.ranking import Measure, parse_measure
from graphrerank.metrics.topological_recall import missed_topological_recall, topological_recall
from graphrerank.utils.checks import UserError, check_counts


class _Mean(Metric):
    """Mean of a score over all queries or predictions. NaN scores do not count.

    Subclasses compute the scores of a batch in float64 and pass them to :meth:`_add`. The state is a sum and a count,
    so memory does not grow with the number of queries. Sums are float32, because not every accelerator has float64.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better: bool | None = True

    total: Tensor
    num_scores: Tensor

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")
        self.add_state("num_scores", torch.tensor(0), dist_reduce_fx="sum")

    def _add(self, scores: Tensor) -> None:
        # Not in place: after Trainer.validate, the states are inference tensors, which Trainer.fit must not change.
        self.total = self.total + scores.nansum().to(self.total)
        self.num_scores = self.num_scores + (~scores.isnan()).sum().to(self.num_scores)

    def compute(self) -> Tensor:
        """Return the mean of all scores since the last reset.

        Returns:
            Scalar float32. NaN if there was no score.
        """
        return self.total / self.num_scores


class RankingMetric(_Mean):
    """Mean of a ranking measure over queries, by the name of the measure.

    Args:
        measure: Name of the measure (:func:`~graphrerank.metrics.parse_measure`), such as ``nDCG@10`` or
            ``PR@10/multi``.
        **settings: Arguments of ``torchmetrics.Metric``, such as ``dist_sync_on_step``.

    Raises:
        UserError: If the name is unknown.

    Example:
        >>> metric = RankingMetric("PR@2")
        >>> metric.update(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 0], [1, 1]]))
        >>> metric.compute()
        tensor(0.5000)
    """

    def __init__(self, measure: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.measure: Measure = parse_measure(measure)

    def update(self, ranked_relevance: Tensor, qrels: Tensor) -> None:
        """Add a batch of queries.

        Args:
            ranked_relevance: Gains in rank order, ``[num_queries, depth]``, 0 for irrelevant documents and padding.
            qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.

        Raises:
            UserError: If the arguments do not fit each other.
        """
        self._add(self.measure(ranked_relevance.cpu(), qrels.cpu()))


class _CutoffMetric(RankingMetric):
    """Ranking measure at a cutoff. Subclasses set the name of the measure without the cutoff.

    Args:
        top_k: Cutoff rank K, at least 1.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    base: ClassVar[str]

    def __init__(self, top_k: int = 10, **settings: Any) -> None:
        check_counts(top_k=top_k)
        super().__init__(f"{self.base}@{top_k}", **settings)


class NormalizedDCG(_CutoffMetric):
    """nDCG at a cutoff (:func:`~graphrerank.metrics.ndcg`).

    Args:
        top_k: Cutoff rank K, at least 1.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    base = "nDCG"


class Recall(_CutoffMetric):
    """Recall at a cutoff (:func:`~graphrerank.metrics.recall`).

    Args:
        top_k: Cutoff rank K, at least 1.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    base = "R"


class CappedRecall(_CutoffMetric):
    """Capped recall at a cutoff (:func:`~graphrerank.metrics.capped_recall`).

    Args:
        top_k: Cutoff rank K, at least 1.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    base = "CR"


class PerfectRecall(RankingMetric):
    """Fraction of queries whose relevant documents are all in the top K (:func:`~graphrerank.metrics.perfect_recall`).

    Args:
        top_k: Cutoff rank K, at least 1.
        multi: Whether only queries with more than one relevant document count.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    def __init__(self, top_k: int = 10, *, multi: bool = False, **settings: Any) -> None:
        check_counts(top_k=top_k)
        super().__init__(f"PR@{top_k}{'/multi' if multi else ''}", **settings)


class ReciprocalRank(RankingMetric):
    """Mean reciprocal rank of the first relevant document (:func:`~graphrerank.metrics.reciprocal_rank`).

    Args:
        top_k: Cutoff rank K, at least 1. If None, the whole ranking is used.
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    def __init__(self, top_k: int | None = None, **settings: Any) -> None:
        check_counts(**({} if top_k is None else {"top_k": top_k}))
        super().__init__("MRR" if top_k is None else f"MRR@{top_k}", **settings)


class TopologicalRecall(_Mean):
    """Mean Topological Recall over queries (:func:`~graphrerank.metrics.topological_recall`).

    Args:
        graph: Undirected corpus graph.
        missed_only: Whether only relevant nodes that were not retrieved count (MissTR,
            :func:`~graphrerank.metrics.missed_topological_recall`).
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    def __init__(self, graph: CorpusGraph, *, missed_only: bool = False, **settings: Any) -> None:
        super().__init__(**settings)
        self.graph = graph
        self.function = missed_topological_recall if missed_only else topological_recall

    def update(self, retrieved: Tensor, relevant: Tensor) -> None:
        """Add a batch of queries.

        Args:
            retrieved: Retrieved nodes of each query in any order, ``[Q, K]`` int64, padded with -1.
            relevant: Relevant nodes of each query, ``[Q, R]`` int64, unique per row, padded with -1.

        Raises:
            UserError: If a shape does not fit, a node is not in the graph, or a query has no relevant node.
        """
        self._add(self.function(self.graph, retrieved, relevant))


class BrierScore(_Mean):
    """Brier score of probabilities (:func:`~graphrerank.metrics.brier_score`). Lower is better.

    Args:
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    higher_is_better = False

    def update(self, probabilities: Tensor, labels: Tensor) -> None:
        """Add a batch of predictions.

        Args:
            probabilities: Predicted probabilities of the positive class, ``[n]``.
            labels: True labels, 0 or 1, ``[n]``.
        """
        if len(probabilities):
            self._add(torch.full((len(probabilities),), brier_score(probabilities, labels), dtype=torch.float64))


class ExpectedCalibrationError(Metric):
    """Expected calibration error in ten bins (:func:`~graphrerank.metrics.expected_calibration_error`).

    The state is the number of predictions, the sum of the probabilities and the sum of the labels of each bin.

    Args:
        **settings: Arguments of ``torchmetrics.Metric``.

    Example:
        >>> metric = ExpectedCalibrationError()
        >>> metric.update(torch.tensor([0.9, 0.9]), torch.tensor([1, 1]))
        >>> metric.update(torch.tensor([0.9, 0.9]), torch.tensor([1, 0]))
        >>> metric.compute()
        tensor(0.1500)
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = False

    sums: Tensor

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_state("sums", torch.zeros(3, NUM_BINS), dist_reduce_fx="sum")

    def update(self, probabilities: Tensor, labels: Tensor) -> None:
        """Add a batch of predictions.

        Args:
            probabilities: Predicted probabilities of the positive class, ``[n]``, at least one.
            labels: True labels, 0 or 1, ``[n]``.

        Raises:
            UserError: If there are no predictions, or if a probability is outside [0, 1].
        """
        self.sums = self.sums + bin_sums(probabilities, labels).to(self.sums)

    def compute(self) -> Tensor:
        """Return the calibration error over all predictions since the last reset.

        Returns:
            Scalar float32 in [0, 1]. NaN if there were no predictions.
        """
        count, probability, positive = self.sums
        return (probability - positive).abs().sum() / count.sum()


class AreaUnderROC(Metric):
    """Area under the ROC curve (:func:`~graphrerank.metrics.area_under_roc`). All scores are kept in memory.

    Args:
        **settings: Arguments of ``torchmetrics.Metric``.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = True

    scores: list[Tensor]
    labels: list[Tensor]

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_state("scores", [], dist_reduce_fx="cat")
        self.add_state("labels", [], dist_reduce_fx="cat")

    def update(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch of predictions.

        Args:
            scores: Scores ``[n]`` of any scale.
            labels: True labels, 0 or 1, ``[n]``.
        """
        self.scores.append(scores.detach())
        self.labels.append(labels)

    def compute(self) -> Tensor:
        """Return the area over all predictions since the last reset.

        Returns:
            Scalar float32 in [0, 1].

        Raises:
            UserError: If one of the classes has no label.
        """
        return torch.tensor(area_under_roc(dim_zero_cat(self.scores), dim_zero_cat(self.labels)))


def ranking_metrics(measures: Sequence[str], prefix: str | None = None) -> MetricCollection:
    """Build a collection of ranking measures, to be logged with ``self.log_dict``.

    Args:
        measures: Names of the measures (:func:`~graphrerank.metrics.parse_measure`), at least one and none twice.
        prefix: Text before each name in the results, such as ``"val/"``. If None, there is none.

    Returns:
        Collection whose ``update`` takes ``ranked_relevance`` and ``qrels``.

    Raises:
        UserError: If there is no measure, a measure is named twice, or a name is unknown.

    Example:
        >>> metrics = ranking_metrics(["PR@2", "MRR"], prefix="val/")
        >>> metrics.update(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 0], [1, 1]]))
        >>> metrics.compute()
        {'val/MRR': tensor(0.7500), 'val/PR@2': tensor(0.5000)}
    """
    if not measures or len(set(measures)) != len(measures):
        raise UserError(f"`measures` must name at least one measure and none twice, got {list(measures)}")
    metrics: dict[str, Metric | MetricCollection] = {measure: RankingMetric(measure) for measure in measures}
    return MetricCollection(metrics, prefix=prefix, compute_groups=False)
