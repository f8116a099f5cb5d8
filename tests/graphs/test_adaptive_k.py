import pytest
import torch

from graphrerank.graphs.adaptive_k import adaptive_k
from graphrerank.graphs.list_confidence import ListConfidence

P = torch.tensor([0.9, 0.5, 0.5, 0.1])
CONFIDENCE = ListConfidence(beyond=-1.0, within=0.0, intercept=0.0)


def test_neither_end() -> None:
    assert adaptive_k(P, CONFIDENCE) is None
    assert adaptive_k(None, None) is None


@pytest.mark.parametrize(("least", "kept"), [(0.0, 4), (0.1, 4), (0.5, 3), (0.51, 1), (0.95, 0), (1.0, 0)])
def test_passages_below_a_probability_are_left_out(least: float, kept: int) -> None:
    assert adaptive_k(P, None, min_probability=least) == kept


def test_against_the_first_rank_that_is_complete_enough() -> None:
    reached = CONFIDENCE.perfect_recall(P).tolist()
    assert reached[0] < reached[1] < reached[2] < reached[3]
    for least in (0.0, *reached, 1.0):
        first = next((rank for rank, chance in enumerate(reached, 1) if chance >= least), len(P))
        assert adaptive_k(P, CONFIDENCE, min_perfect_recall=least) == first
    assert adaptive_k(P, CONFIDENCE, min_perfect_recall=1.0, min_probability=0.5) == 3  # the smaller one


def test_an_empty_list_stays_empty() -> None:
    assert adaptive_k(P[:0], CONFIDENCE, min_probability=0.0, min_perfect_recall=0.5) == 0


def test_what_the_model_lacks_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"`min_probability` needs a calibrated model.*graphrerank calibrate checkpoint="
    ):
        adaptive_k(None, None, min_probability=0.5)
    with pytest.raises(ValueError, match=r"`min_perfect_recall` needs a model with `list_confidence`"):
        adaptive_k(P, None, min_perfect_recall=0.5)
    with pytest.raises(ValueError, match=r"`min_probability` must be a probability in \[0, 1\], got 50"):
        adaptive_k(P, None, min_probability=50)
