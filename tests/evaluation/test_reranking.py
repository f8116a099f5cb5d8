import math

import pytest
import torch

from graphrerank.core import CandidateGraphs
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.measuring import measure_ranking
from graphrerank.evaluation.reranking import measure_queries, rerank
from graphrerank.evaluation.systems import System


def prefer_first_triangle(graphs: CandidateGraphs) -> torch.Tensor:
    return -graphs.nodes.float()


def test_rankings_are_padded_and_sorted_and_a_batch_equals_singles(prepared: PreparedDataset) -> None:
    first = System("first", prefer_first_triangle)
    ranking = rerank(prepared, torch.tensor([1, 0]), first)
    assert ranking.nodes.tolist() == [[0, 3, 4, -1], [0, 1, 3, 4]]
    assert ranking.scores.tolist() == [[0.0, -3.0, -4.0, -math.inf], [0.0, -1.0, -3.0, -4.0]]
    singles = [rerank(prepared, torch.tensor([query]), first).nodes for query in (1, 0)]
    assert torch.equal(ranking.nodes, torch.cat(singles))


def test_nan_scores_are_refused(prepared: PreparedDataset) -> None:
    with pytest.raises(ValueError, match="must not contain NaN"):
        rerank(prepared, torch.arange(3), System("broken", lambda graphs: graphs.x[:, 0] * torch.nan))


def test_queries_of_a_split_are_measured(prepared: PreparedDataset) -> None:
    first = System("first", prefer_first_triangle)
    qrels = prepared.dataset.split("val")
    ranking = rerank(prepared, qrels.queries, first)
    expected = measure_ranking(prepared.dataset, qrels, qrels.queries, ranking, ["R@2"])["R@2"]
    assert torch.equal(measure_queries(prepared, "val", first, measures=["R@2"])["R@2"], expected)
    assert expected.tolist() == [1.0, 0.5, 0.0]  # a and b; d of d and e; neither c nor f
