import pytest
import torch
from torch import Tensor

from graphrerank.metrics import expected_calibration_error
from graphrerank.training.list_confidence import fit_list_confidence

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


def test_data_sets_without_complete_lists_teach_nothing() -> None:
    lists = {"a": lists_of(200, 1), "b": lists_of(200, 2)}
    p, complete = lists_of(20, 3)
    never = complete & (torch.arange(20) == 0).unsqueeze(1)  # one of twenty at most
    assert fit_list_confidence({**lists, "never": (p, never)}) == fit_list_confidence(lists)


def test_a_data_set_by_itself_teaches_however_rarely_its_lists_are_complete() -> None:
    p, complete = lists_of(200, 3)
    rarely = complete & (torch.arange(200) % 20 == 0).unsqueeze(1)
    found = fit_list_confidence({"rarely": (p, rarely)}).perfect_recall(p)
    share = float(rarely[:, 9].double().mean())
    assert 0 < share < 0.1
    assert float(found[:, 9].mean()) == pytest.approx(share, abs=0.05)


def test_lists_that_teach_nothing_are_refused() -> None:
    p = torch.tensor([[0.9, 0.5]])
    for complete in (torch.tensor([[True, True]]), torch.tensor([[False, False]])):
        with pytest.raises(ValueError, match="`lists` must be complete at some ranks and incomplete at others, got"):
            fit_list_confidence({"a": (p, complete)})


def test_ranks_beyond_the_lists_are_left_out() -> None:
    lists = {"a": (torch.tensor([[0.9, 0.1], [0.4, 0.3]]), torch.tensor([[True, True], [False, True]]))}
    assert fit_list_confidence(lists) == fit_list_confidence(lists, ranks=(1, 2))
