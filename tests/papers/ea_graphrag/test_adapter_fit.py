import math
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.feature_selection import mutual_info_classif
from sklearn.metrics import log_loss
from torch import Tensor

from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_fit import (
    AdapterSettings,
    LabelledRows,
    calibrate,
    fit_adapter,
    fit_temperature,
    smoothed_cross_entropy,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

BUILD = partial(ComplexityAdapter, hidden_channels=[32, 32])
SETTINGS: dict[str, Any] = {"num_selected": 6, "max_epochs": 12, "learning_rate": 3e-3}


def planted(num_rows: int, seed: int = 0, *, noise: float = 0.5) -> LabelledRows:
    """Ten raw features of very different sizes; two of them decide, one only through its absolute size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, 10, generator=generator)
    decides = 2 * x[:, 1] + 2 * (x[:, 6].abs() - 0.7) + noise * torch.randn(num_rows, generator=generator)
    scale, shift = torch.logspace(-3, 3, 10), torch.linspace(-50, 50, 10)
    return LabelledRows(x * scale + shift * scale, (decides > 0).long())


def test_a_planted_signal_is_learned() -> None:
    fitted = fit_adapter(BUILD, planted(240), planted(60, 1), AdapterSettings(**SETTINGS | {"max_epochs": 30}))
    held_out = planted(400, 2)
    with torch.inference_mode():
        scores = fitted.model(held_out.features)
    assert area_under_roc(scores, held_out.labels) > 0.93
    assert {1, 6} <= set(fitted.model.selected.tolist())
    assert not fitted.model.training
    assert len(fitted.model.selected) == 6


def test_same_rows_and_settings_give_the_same_weights() -> None:
    def weights(**arguments: Any) -> dict[str, Tensor]:
        torch.manual_seed(len(arguments) + int(torch.randint(1000, ())))  # what was drawn before must not matter
        settings = AdapterSettings(**SETTINGS | {"max_epochs": 3} | arguments)
        return dict(fit_adapter(BUILD, planted(60), planted(30, 1), settings).model.state_dict())

    first, second, other = weights(), weights(), weights(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lin_out.weight"], other["lin_out.weight"])


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    fit_adapter(BUILD, planted(40), planted(20, 1), AdapterSettings(**SETTINGS | {"max_epochs": 1}))
    assert torch.equal(before, torch.get_rng_state())


def test_features_and_z_scores_are_of_the_training_rows_alone() -> None:
    train, settings = planted(60), AdapterSettings(**SETTINGS | {"max_epochs": 1})
    validation = planted(30, 1)
    other = LabelledRows(1000 * validation.features, 1 - validation.labels)
    one, two = (fit_adapter(BUILD, train, held, settings).model for held in (validation, other))
    for name in ("selected", "mean", "std"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    columns = train.features[:, one.selected].double()
    torch.testing.assert_close(one.mean.double(), columns.mean(0))
    torch.testing.assert_close(one.std.double(), columns.std(0, correction=0), rtol=1e-5, atol=0)


def test_stops_early_and_keeps_the_best_epoch() -> None:
    train = planted(60)
    noise = LabelledRows(train.features, train.labels[torch.randperm(60, generator=torch.Generator().manual_seed(0))])
    settings = AdapterSettings(**SETTINGS | {"max_epochs": 60, "patience": 3, "dropout": 0.0})
    fitted = fit_adapter(BUILD, noise, planted(40, 1), settings)
    losses = [row["val/loss"] for row in fitted.history]
    assert len(losses) == fitted.best_epoch + 3 < 60
    assert fitted.best_epoch == losses.index(min(losses)) + 1
    held = planted(40, 1)
    logits = fitted.model.logits(held.features)
    loss = smoothed_cross_entropy(logits, held.labels, smoothing=settings.smoothing, class_weight=torch.ones(2))
    assert loss.item() == pytest.approx(min(losses), abs=1e-5)


def test_the_rate_falls_as_a_cosine_and_biases_do_not_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, groups = [], []

    class Recorded(torch.optim.AdamW):
        def step(self, *arguments: Any) -> None:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])
            groups[:] = self.param_groups
            super().step(*arguments)

    monkeypatch.setattr(torch.optim, "AdamW", Recorded)
    settings = AdapterSettings(**SETTINGS | {"batch_size": 20, "learning_rate": 0.01, "max_epochs": 4})
    fitted = fit_adapter(BUILD, planted(60), planted(30, 1), settings)
    assert len(rates) == 3 * len(fitted.history) == 12
    assert rates == pytest.approx([0.005 * (1 + math.cos(math.pi * step / 12)) for step in range(12)], abs=1e-9)
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    assert all(p.dim() > 1 for p in groups[0]["params"])
    assert sum(len(group["params"]) for group in groups) == len(list(fitted.model.parameters()))


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_loss_against_sklearn(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(20, generator=generator).double(), torch.randint(0, 2, (20,), generator=generator)
    weight = torch.tensor([0.5, 2.0]).double()
    p, rows = torch.sigmoid(logits), weight[labels]
    kept = log_loss(labels.numpy(), p.numpy(), sample_weight=rows.numpy())
    flipped = log_loss(1 - labels.numpy(), p.numpy(), sample_weight=rows.numpy())
    expected = (1 - smoothing / 2) * kept + smoothing / 2 * flipped
    assert float(smoothed_cross_entropy(logits, labels, smoothing=smoothing, class_weight=weight)) == pytest.approx(
        expected
    )


def test_balanced_classes_move_the_scores_of_a_rare_class_up() -> None:
    made = planted(300)
    keep = (made.labels == 0) | (torch.arange(300) % 6 == 0)
    rare, held = made.take(keep.nonzero().squeeze(1)), planted(60, 1)
    plain, balanced = (
        fit_adapter(BUILD, rare, held, AdapterSettings(**SETTINGS | {"balanced": balanced})).model
        for balanced in (False, True)
    )
    with torch.inference_mode():
        assert float(balanced(held.features).mean()) > float(plain(held.features).mean()) + 0.05


@pytest.mark.parametrize(
    ("odd", "match"),
    [
        ({"learning_rate": 0}, "`learning_rate` must be a finite number above 0, got 0"),
        ({"patience": 0}, "`patience` must be a positive integer, got 0"),
        ({"smoothing": 1.0}, r"`smoothing` must lie in \[0, 1\), got 1.0"),
        ({"weight_decay": -1.0}, r"`weight_decay` must not be negative, got -1.0"),
    ],
)
def test_settings_are_checked(odd: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        AdapterSettings(**odd)


def test_rows_of_different_features_are_refused() -> None:
    narrow = LabelledRows(torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    with pytest.raises(ValueError, match="`validation` must have the features of `train`, 10, got 3"):
        fit_adapter(BUILD, planted(20), narrow, AdapterSettings())


def rows(num_rows: int = 60, num_features: int = 6, *, share: float = 0.3, seed: int = 0) -> LabelledRows:
    """Column 2 tells the label, column 4 does in part, the rest is noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = (torch.arange(num_rows) < share * num_rows).long()[torch.randperm(num_rows, generator=generator)]
    features = torch.randn(num_rows, num_features, generator=generator)
    features[:, 2] = 5 * labels + 0.1 * features[:, 2]
    features[:, 4] = labels + features[:, 4]
    return LabelledRows(features, labels)


def test_selection_against_sklearn() -> None:
    made = rows(200, 12)
    shared = torch.from_numpy(mutual_info_classif(made.features.numpy(), made.labels.numpy(), random_state=7))
    for top_k in (1, 2, 5):
        found = LabelledRows(made.features, made.labels, 7).top_features(top_k)
        assert found.tolist() == sorted(shared.argsort(descending=True)[:top_k].tolist())
        assert 2 in found
    assert LabelledRows(made.features, made.labels).top_features(2).tolist() == [2, 4]
    assert LabelledRows(made.features, made.labels).top_features(85).tolist() == list(range(12))  # 85 of 12


def test_z_scores_by_hand() -> None:
    features = torch.tensor([[1.0, 7.0, 0.0], [3.0, 7.0, 1e6], [5.0, 7.0, 0.0], [7.0, 7.0, 1e6]])
    mean, std = LabelledRows(features, torch.tensor([0, 1, 0, 1])).z_scores(torch.tensor([0, 1, 2]))
    torch.testing.assert_close(mean, torch.tensor([4.0, 7.0, 5e5]))
    torch.testing.assert_close(std, torch.tensor([5.0**0.5, 1.0, 5e5]))  # a constant column is left as it is


def test_rows_to_stop_by_are_a_fifth_of_each_class() -> None:
    made = rows()
    train, held = made.early_stopping_split
    assert (len(train), len(held)) == (48, 12)
    assert int(held.labels.sum()) == 4
    joined = torch.cat([train.features, held.features])
    assert sorted(joined[:, 0].tolist()) == sorted(made.features[:, 0].tolist())


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_alone_is_refused(label: int) -> None:
    with pytest.raises(ValueError, match=rf"`labels` must hold both classes, 0 and 1, got \[{label}\] in 4 rows"):
        LabelledRows(torch.zeros(4, 2), torch.full((4,), label))


def test_rows_are_checked() -> None:
    labels = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=r"both classes, 0 and 1, got \[0, 1, 2\]"):
        LabelledRows(torch.zeros(3, 2), labels)
    with pytest.raises(ValueError, match=r"`features` must have shape \[n, F\] and `labels` \[n\], got \(4, 2\) and"):
        LabelledRows(torch.zeros(4, 2), labels)
    with pytest.raises(ValueError, match="`features` must be finite, got NaN or infinity in row 1"):
        LabelledRows(torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 1]))


def test_too_few_rows_for_a_split_are_refused() -> None:
    few = LabelledRows(torch.randn(6, 2), torch.tensor([0, 0, 0, 0, 0, 1]))
    with pytest.raises(ValueError, match="two rows of each class, got 1 of the rarer one"):
        _ = few.early_stopping_split
    with pytest.raises(ValueError, match="`top_k` must be a positive integer, got 0"):
        few.top_features(0)


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
