import pytest
import torch

from graphrerank.calibration.list_confidence import ListConfidence, adaptive_k, list_statistics

CONFIDENCE = ListConfidence(beyond=-1.5, within=0.25, intercept=-0.75)
RISING = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)
P = torch.tensor([0.9, 0.5, 0.5, 0.1])


def test_numbers_worked_by_hand() -> None:
    beyond, within, best = list_statistics(torch.tensor([0.5, 0.25, 0.0])).exp().unbind(1)
    assert beyond.dtype == torch.float64
    assert beyond.tolist() == pytest.approx([0.251, 0.001, 0.001])
    assert within.tolist() == pytest.approx([0.501, 0.751, 0.751])
    assert best.tolist() == pytest.approx([0.501] * 3)


def test_it_never_falls_with_the_rank() -> None:
    rising = torch.rand(50, generator=torch.Generator().manual_seed(0)).sort(descending=True).values
    assert bool((CONFIDENCE.perfect_recall(rising).diff() >= 0).all())
    falling = ListConfidence(beyond=0.0, within=-1.0, intercept=0.0)
    first, *others = falling.perfect_recall(torch.tensor([0.9, 0.5, 0.1])).tolist()
    assert others == [first, first]


def test_a_sure_first_passage_counts() -> None:
    p = torch.tensor([[0.9, 0.1, 0.1], [0.1, 0.1, 0.1]])
    sure, unsure = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0, best=0.5).perfect_recall(p)[:, 0].tolist()
    assert sure > unsure
    old = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0).perfect_recall(p)[:, 0]
    assert old[0] == old[1]


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,), (2, 5), (3, 100)])
def test_any_shape_and_padding(shape: tuple[int, ...]) -> None:
    p = torch.rand(shape, generator=torch.Generator().manual_seed(0)).sort(-1, descending=True).values
    for certain in (torch.ones_like(p), torch.zeros_like(p), p):
        found = CONFIDENCE.perfect_recall(certain)
        assert (found.shape, found.dtype, bool(found.isfinite().all())) == (shape, torch.float32, True)
    padded = CONFIDENCE.perfect_recall(torch.nn.functional.pad(p, (0, 4)))
    torch.testing.assert_close(padded[..., : shape[-1]], CONFIDENCE.perfect_recall(p))


@pytest.mark.parametrize(("least", "kept"), [(0.0, 4), (0.1, 4), (0.5, 3), (0.51, 1), (0.95, 0), (1.0, 0)])
def test_passages_below_a_probability_are_left_out(least: float, kept: int) -> None:
    assert adaptive_k(P, None, min_probability=least) == kept


def test_against_the_first_rank_that_is_complete_enough() -> None:
    reached = RISING.perfect_recall(P).tolist()
    assert reached[0] < reached[1] < reached[2] < reached[3]
    for least in (0.0, *reached, 1.0):
        first = next((rank for rank, chance in enumerate(reached, 1) if chance >= least), len(P))
        assert adaptive_k(P, RISING, min_perfect_recall=least) == first
    assert adaptive_k(P, RISING, min_perfect_recall=1.0, min_probability=0.5) == 3  # the smaller one


def test_empty_lists_and_no_end() -> None:
    assert adaptive_k(P[:0], RISING, min_probability=0.0, min_perfect_recall=0.5) == 0
    assert adaptive_k(P, RISING) is adaptive_k(None, None) is None


def test_what_the_model_lacks_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"`min_probability` requires a calibrated model.*graphrerank calibrate checkpoint="
    ):
        adaptive_k(None, None, min_probability=0.5)
    with pytest.raises(ValueError, match=r"`min_perfect_recall` requires a model with `list_confidence`"):
        adaptive_k(P, None, min_perfect_recall=0.5)
    with pytest.raises(ValueError, match=r"`min_probability` must lie in \[0, 1\], got 50"):
        adaptive_k(P, None, min_probability=50)
