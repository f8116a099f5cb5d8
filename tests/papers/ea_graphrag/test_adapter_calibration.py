from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from graphrerank_papers.ea_graphrag.adapter_calibration import calibrate, fit_temperature
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter


def overconfident(num_rows: int = 400, *, times: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that are ``times`` the true ones, and labels of the true ones."""
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(num_rows, generator=generator)
    return times * true, (torch.rand(num_rows, generator=generator) < torch.sigmoid(true)).long()


def nll(logits: Tensor, labels: Tensor, temperature: float) -> float:
    return float(F.binary_cross_entropy_with_logits(logits.double() / temperature, labels.double()))


@pytest.mark.parametrize("times", [0.3, 1.0, 3.0])
def test_a_planted_temperature_is_found(times: float) -> None:
    assert fit_temperature(*overconfident(20_000, times=times)) == pytest.approx(times, rel=0.05)


@pytest.mark.parametrize("seed", range(4))
def test_against_a_grid(seed: int) -> None:
    logits, labels = overconfident(30, seed=seed)
    grid = torch.logspace(-1.2, 1.2, 2001, dtype=torch.float64).tolist()
    best = min(nll(logits, labels, temperature) for temperature in grid)
    assert nll(logits, labels, fit_temperature(logits, labels)) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("sign", "bound"), [(1, 1 / 20), (-1, 20)])
def test_rows_that_are_all_right_or_all_wrong_stop_at_a_bound(sign: int, bound: float) -> None:
    labels = torch.tensor([0, 1, 1, 0])
    assert fit_temperature(sign * (2.0 * labels - 1), labels) == pytest.approx(bound)


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match=r"`logits` must be one or more finite numbers, got .*inf"):
        fit_temperature(torch.tensor([torch.inf, 0.0]), torch.tensor([1, 0]))
    with pytest.raises(ValueError, match="`logits` must be one or more"):
        fit_temperature(torch.tensor([]), torch.tensor([]))


def test_the_models_temperature_is_set_and_lowers_the_loss() -> None:
    logits, labels = overconfident()
    model: Any = ComplexityAdapter(num_features=1, num_selected=1, hidden_channels=[2])
    model.logits = partial(torch.squeeze, dim=1)  # the feature is the logit
    rows = LabelledRows(logits.unsqueeze(1), labels)
    before = torch.sigmoid(model.logits(rows.features))
    found = calibrate(model, rows)
    assert torch.equal(model(rows.features), torch.sigmoid(logits / model.temperature))
    assert not torch.equal(model(rows.features), before)
    assert float(model.temperature) == pytest.approx(found.temperature)
    assert found.temperature > 2
    assert found.nll_before == pytest.approx(nll(logits, labels, 1))
    assert found.nll_after == pytest.approx(nll(logits, labels, found.temperature))
    assert found.nll_after < found.nll_before - 0.1
    assert found.ece_after < found.ece_before
