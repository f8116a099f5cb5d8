"""The classes of torchmetrics against the functions, over batches and processes."""

import copy

import pytest
import torch
from torchmetrics import Metric

from graphrerank import metrics
from graphrerank.corpus import CorpusGraph
from graphrerank.metrics import torchmetrics_classes as classes

QRELS = torch.tensor([[1, 0, 0], [2, 1, 0], [1, 1, 1], [3, 0, 0], [1, 2, 0]])
RANKED = torch.tensor([[0, 0, 1, 0], [1, 0, 0, 2], [1, 1, 0, 0], [0, 0, 0, 0], [0, 2, 1, 0]])
P = torch.tensor([0.05, 0.31, 0.38, 0.92, 1.0])
LABELS = torch.tensor([0, 1, 0, 1, 1])
GRAPH = CorpusGraph.from_edges(list("abcd"), [""] * 4, torch.tensor([[0, 1], [1, 2]]))
RETRIEVED = torch.tensor([[0, -1], [3, 1], [2, 0], [1, 0], [3, -1]])
RELEVANT = torch.tensor([[0, 1], [2, -1], [3, 1], [1, -1], [0, 2]])
CASES = [
    (classes.NormalizedDCG(3), (RANKED, QRELS), metrics.ndcg(RANKED, QRELS, top_k=3).mean()),
    (classes.Recall(2), (RANKED, QRELS), metrics.recall(RANKED, QRELS, top_k=2).mean()),
    (classes.CappedRecall(2), (RANKED, QRELS), metrics.capped_recall(RANKED, QRELS, top_k=2).mean()),
    (classes.PerfectRecall(3), (RANKED, QRELS), torch.tensor(2 / 5)),  # by hand: queries 0 and 4
    (classes.PerfectRecall(3, multi=True), (RANKED, QRELS), torch.tensor(1 / 3)),  # of queries 1, 2 and 4, the last
    (classes.ReciprocalRank(), (RANKED, QRELS), metrics.reciprocal_rank(RANKED, QRELS).mean()),
    (classes.ReciprocalRank(1), (RANKED, QRELS), torch.tensor(2 / 5)),
    (
        classes.TopologicalRecall(GRAPH),
        (RETRIEVED, RELEVANT),
        metrics.topological_recall(GRAPH, RETRIEVED, RELEVANT).mean(),
    ),
    (
        classes.TopologicalRecall(GRAPH, missed_only=True),
        (RETRIEVED, RELEVANT),
        metrics.missed_topological_recall(GRAPH, RETRIEVED, RELEVANT).mean(),
    ),
    (classes.BrierScore(), (P, LABELS), torch.tensor(metrics.brier_score(P, LABELS))),
    (classes.ExpectedCalibrationError(), (P, LABELS), torch.tensor(metrics.expected_calibration_error(P, LABELS))),
    (classes.AreaUnderROC(), (P, LABELS), torch.tensor(metrics.area_under_roc(P, LABELS))),
]
IDS = [f"{type(metric).__name__}-{index}" for index, (metric, *_) in enumerate(CASES)]


@pytest.mark.parametrize(("metric", "arguments", "expected"), CASES, ids=IDS)
def test_batches_and_processes_add_up_to_one_pass(
    metric: Metric, arguments: tuple[torch.Tensor, torch.Tensor], expected: torch.Tensor
) -> None:
    first, second = copy.deepcopy(metric), copy.deepcopy(metric)
    for rows in ([0], [1, 2]):
        first.update(*(argument[rows] for argument in arguments))
    second.update(*(argument[3:] for argument in arguments))
    first.merge_state(second)
    torch.testing.assert_close(first.compute(), expected.float())
    first.reset()
    first.update(*arguments)
    torch.testing.assert_close(first.compute(), expected.float())


def test_every_measure_has_a_class() -> None:
    measures = {name for name in metrics.__all__ if name not in {"Measure", "parse_measure"}}
    covered = {
        "area_under_roc": classes.AreaUnderROC,
        "brier_score": classes.BrierScore,
        "capped_recall": classes.CappedRecall,
        "expected_calibration_error": classes.ExpectedCalibrationError,
        "missed_topological_recall": classes.TopologicalRecall,
        "ndcg": classes.NormalizedDCG,
        "perfect_recall": classes.PerfectRecall,
        "recall": classes.Recall,
        "reciprocal_rank": classes.ReciprocalRank,
        "topological_recall": classes.TopologicalRecall,
    }
    assert measures - covered.keys() == {"path_uncertainty", "reliability_bins"}  # they are no scores of a query


def test_no_query_that_counts_is_nan() -> None:
    found = classes.ranking_metrics(["PR@3/multi", "PR@3"], prefix="test/")
    found.update(RANKED[:1], QRELS[:1])
    means = found.compute()
    assert list(means) == ["test/PR@3", "test/PR@3/multi"]
    assert means["test/PR@3/multi"].isnan()
    assert means["test/PR@3"] == 1


@pytest.mark.parametrize("measures", [[], ["R@3", "MRR", "R@3"]])
def test_no_measure_or_one_twice_is_refused(measures: list[str]) -> None:
    with pytest.raises(ValueError, match="`measures` must name at least one measure and none twice, got"):
        classes.ranking_metrics(measures)


def test_a_cutoff_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        classes.NormalizedDCG(0)
