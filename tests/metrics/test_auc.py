import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphrerank.metrics import area_under_roc


@pytest.mark.parametrize("seed", range(5))
def test_against_sklearn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 8, (50,), generator=generator) / 8  # many ties
    labels = torch.randint(0, 2, (50,), generator=generator)
    assert area_under_roc(scores, labels) == pytest.approx(roc_auc_score(labels.numpy(), scores.numpy()))


def test_constant_scores_are_chance() -> None:
    assert area_under_roc(torch.full((5,), 0.7), torch.tensor([1, 0, 0, 1, 0])) == 0.5


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="`labels` must hold both classes, got 2 ones and 0 zeros"):
        area_under_roc(torch.rand(2), torch.ones(2))
