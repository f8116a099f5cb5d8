import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphrerank.metrics import area_under_roc, expected_calibration_error


def test_against_naive_loop() -> None:
    generator = torch.Generator().manual_seed(0)
    p = torch.cat([torch.rand(200, generator=generator), torch.tensor([0.0, 1.0])]).double()
    y = torch.randint(0, 2, (202,), generator=generator)
    total = 0.0
    for b in range(10):
        rows = [i for i in range(202) if b / 10 <= p[i] < (b + 1) / 10 or (b == 9 and p[i] == 1)]
        total += len(rows) / 202 * abs(float(p[rows].mean()) - float(y[rows].double().mean()))
    assert expected_calibration_error(p, y) == pytest.approx(total)


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"`probabilities` must be one or more numbers in \[0, 1\]"):
        expected_calibration_error(torch.tensor([1.2]), torch.tensor([1]))
    with pytest.raises(ValueError, match="one or more"):
        expected_calibration_error(torch.tensor([]), torch.tensor([]))


@pytest.mark.parametrize("seed", range(5))
def test_area_against_sklearn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, 8, (50,), generator=generator) / 8  # many ties
    labels = torch.randint(0, 2, (50,), generator=generator)
    assert area_under_roc(scores, labels) == pytest.approx(roc_auc_score(labels.numpy(), scores.numpy()))


def test_one_class_is_refused() -> None:
    with pytest.raises(ValueError, match="`labels` must contain both classes, got 2 ones and 0 zeros"):
        area_under_roc(torch.rand(2), torch.ones(2))
