import pytest
import torch
from torch import Tensor

from graphrerank.calibration.fitting import fit_list_confidence, fit_logistic
from graphrerank.metrics import expected_calibration_error


def planted(num_pairs: int, slope: float, intercept: float, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Scores, and labels that a logistic function of them drew."""
    generator = torch.Generator().manual_seed(seed)
    scores = 2 * torch.randn(num_pairs, generator=generator)
    p = torch.sigmoid(slope * scores + intercept)
    return scores, (torch.rand(num_pairs, generator=generator) < p).long()


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-4, 7.0), (30.0, -2.0)])
@pytest.mark.parametrize(("slope", "intercept"), [(1.0, -1.0), (0.5, -3.0), (8.0, -5.0)])
def test_logistic_against_sklearn(slope: float, intercept: float, scale: float, shift: float) -> None:
    """Soft targets as pairs of both labels with weights."""
    from sklearn.linear_model import LogisticRegression

    scores, labels = planted(200, slope, intercept)
    positive = int(labels.sum())
    target = torch.where(labels > 0, (positive + 1) / (positive + 2), 1 / (200 - positive + 2))
    oracle = LogisticRegression(C=float("inf"), tol=1e-10, max_iter=1000).fit(
        scores.repeat(2).unsqueeze(1).double(), [1] * 200 + [0] * 200, torch.cat([target, 1 - target]).double()
    )
    found = fit_logistic(scores.double() * scale + shift, labels)
    parts = [found.slope * scale, found.intercept + found.slope * shift]
    assert parts == pytest.approx([oracle.coef_.item(), oracle.intercept_.item()], abs=1e-3)


def test_scores_that_mislead_get_the_base_rate() -> None:
    scores, labels = planted(2_000, 1.0, -1.0)
    found = fit_logistic(-scores, labels)
    assert found.slope == 0
    assert torch.sigmoid(torch.tensor(found.intercept)).item() == pytest.approx(float(labels.double().mean()), abs=1e-3)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [([0] * 10, [1 / 12] * 10), ([1] * 10, [11 / 12] * 10), ([0, 0, 1, 1], [0.25] * 2 + [0.75] * 2)],
)
def test_labels_all_alike_or_separated_stay_finite(labels: list[int], expected: list[float]) -> None:
    """Platt's targets keep probabilities from 0 and 1."""
    scores = torch.arange(float(len(labels)))
    p = fit_logistic(scores, torch.tensor(labels)).probabilities(scores)
    assert p.tolist() == pytest.approx(expected, abs=1e-4 if len(set(labels)) == 1 else 0.2)
    if len(set(labels)) == 1:
        same = fit_logistic(torch.ones(10), torch.tensor(labels)).probabilities(scores)
        assert same.tolist() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (torch.zeros(0), torch.zeros(0), r"`scores` must be \[n\] finite numbers with n >= 1, got shape \[0\]"),
        (torch.zeros(2, 2), torch.zeros(2, 2), r"`scores` .*, got shape \[2, 2\]"),
        (torch.tensor([0.0, torch.nan]), torch.ones(2), r"`scores` .*, got \[nan\]"),
        (torch.zeros(2), torch.zeros(3), r"`labels` must be 0 or 1 for each of 2 scores, got \[0.0\] of shape \[3\]"),
        (torch.zeros(2), torch.tensor([1.0, 2.0]), r"`labels` .*, got \[1.0, 2.0\] of shape \[2\]"),
    ],
)
def test_pairs_that_do_not_fit_are_refused(scores: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_logistic(scores, labels)


RANKS = (1, 2, 5)


def lists_of(num_queries: int, seed: int) -> tuple[Tensor, Tensor]:
    """Lists whose passages are relevant independently, with the probabilities given; and whether tops are complete."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(num_queries, 20, generator=generator)
    p = torch.sigmoid(4 * spread - 4 + torch.randn(num_queries, 1, generator=generator))
    p = p.sort(1, descending=True).values
    relevant = torch.rand(p.shape, generator=generator) < p
    return p, relevant.cumsum(1) == relevant.sum(1, keepdim=True)


def test_probabilities_are_frequencies_on_other_lists() -> None:
    confidence = fit_list_confidence({"a": lists_of(4000, 1), "b": lists_of(4000, 2)}, ranks=RANKS)
    p, complete = lists_of(4000, 3)
    for rank in RANKS:
        found, labels = confidence.perfect_recall(p)[:, rank - 1], complete[:, rank - 1]
        assert expected_calibration_error(found, labels) < 0.06
        assert found[labels].mean() > found[~labels].mean() + 0.2


def test_data_sets_count_the_same_whatever_their_size() -> None:
    p = torch.tensor([[0.9, 0.5]])
    late, soon = torch.tensor([[False, True]]), torch.tensor([[True, True]])
    few, many = (p, late), (p.repeat(50, 1), soon.repeat(50, 1))
    confidence = fit_list_confidence({"few": few, "many": many}, ranks=(1, 2))
    swapped = fit_list_confidence({"few": (p, soon), "many": (p.repeat(50, 1), late.repeat(50, 1))}, ranks=(1, 2))
    torch.testing.assert_close(confidence.perfect_recall(p), swapped.perfect_recall(p), rtol=0, atol=1e-3)


def test_data_sets_without_complete_lists_teach_nothing_but_by_themselves() -> None:
    lists = {"a": lists_of(200, 1), "b": lists_of(200, 2)}
    p, complete = lists_of(200, 3)
    rarely = complete & (torch.arange(200) % 20 == 0).unsqueeze(1)
    assert fit_list_confidence({**lists, "rarely": (p, rarely)}) == fit_list_confidence(lists)
    found = fit_list_confidence({"rarely": (p, rarely)}).perfect_recall(p)
    share = float(rarely[:, 9].double().mean())
    assert 0 < share < 0.1
    assert float(found[:, 9].mean()) == pytest.approx(share, abs=0.05)


def test_lists_that_teach_nothing_are_refused_and_ranks_beyond_them_left_out() -> None:
    lists = {"a": (torch.tensor([[0.9, 0.1], [0.4, 0.3]]), torch.tensor([[True, True], [False, True]]))}
    assert fit_list_confidence(lists) == fit_list_confidence(lists, ranks=(1, 2))
    p = torch.tensor([[0.9, 0.5]])
    for complete in (torch.tensor([[True, True]]), torch.tensor([[False, False]])):
        with pytest.raises(ValueError, match="`lists` must be complete at some ranks and incomplete at others, got"):
            fit_list_confidence({"a": (p, complete)})
