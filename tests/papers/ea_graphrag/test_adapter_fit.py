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
from graphrerank.pipelines.router import choose_routes
from graphrerank_papers.ea_graphrag.adapter_fit import (
    SMOOTHING,
    AdapterSettings,
    Rows,
    ThresholdChoice,
    calibrate,
    choose_thresholds,
    early_stopping_split,
    fit_adapter,
    fit_temperature,
    smoothed_cross_entropy,
    top_features,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

BUILD = partial(ComplexityAdapter, hidden_channels=[32, 32])
SETTINGS: dict[str, Any] = {"num_selected": 6, "max_epochs": 12, "learning_rate": 3e-3}


def planted(num_rows: int, seed: int = 0) -> Rows:
    """Ten raw features of very different sizes; two of them decide, one only through its absolute size."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_rows, 10, generator=generator)
    decides = 2 * x[:, 1] + 2 * (x[:, 6].abs() - 0.7) + 0.5 * torch.randn(num_rows, generator=generator)
    scale, shift = torch.logspace(-3, 3, 10), torch.linspace(-50, 50, 10)
    return x * scale + shift * scale, (decides > 0).long()


def test_a_planted_signal_is_learned() -> None:
    model, _ = fit_adapter(BUILD, planted(240), planted(60, 1), AdapterSettings(**SETTINGS | {"max_epochs": 30}))
    features, labels = planted(400, 2)
    assert area_under_roc(model(features).detach(), labels) > 0.93
    assert {1, 6} <= set(model.selected.tolist())
    assert (model.training, len(model.selected)) == (False, 6)


def test_same_rows_and_settings_give_the_same_weights() -> None:
    def weights(**arguments: Any) -> dict[str, Tensor]:
        torch.manual_seed(len(arguments) + int(torch.randint(1000, ())))  # what was drawn before must not matter
        settings = AdapterSettings(**SETTINGS | {"max_epochs": 3} | arguments)
        before = torch.get_rng_state()
        model, _ = fit_adapter(BUILD, planted(60), planted(30, 1), settings)
        assert torch.equal(before, torch.get_rng_state())
        return dict(model.state_dict())

    first, second, other = weights(), weights(), weights(seed=1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lin_out.weight"], other["lin_out.weight"])


def test_features_and_z_scores_are_of_the_training_rows_alone() -> None:
    train, settings = planted(60), AdapterSettings(**SETTINGS | {"max_epochs": 1})
    features, labels = planted(30, 1)
    one, two = (
        fit_adapter(BUILD, train, held, settings)[0] for held in ((features, labels), (1000 * features, 1 - labels))
    )
    for name in ("selected", "mean", "std"):
        assert torch.equal(getattr(one, name), getattr(two, name))
    columns = train[0][:, one.selected].double()
    torch.testing.assert_close(one.mean.double(), columns.mean(0))
    torch.testing.assert_close(one.std.double(), columns.std(0, correction=0), rtol=1e-5, atol=0)


def test_stops_early_and_keeps_the_best_epoch() -> None:
    features, labels = planted(60)
    noisy = features, labels[torch.randperm(60, generator=torch.Generator().manual_seed(0))]
    settings = AdapterSettings(**SETTINGS | {"max_epochs": 60, "patience": 3, "dropout": 0.0})
    held = planted(40, 1)
    model, history = fit_adapter(BUILD, noisy, held, settings)
    losses = [row["val/loss"] for row in history]
    assert len(losses) == losses.index(min(losses)) + 1 + 3 < 60
    assert smoothed_cross_entropy(model.logits(held[0]), held[1]).item() == pytest.approx(min(losses), abs=1e-5)


def test_the_rate_falls_as_a_cosine_and_biases_do_not_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    rates, groups = [], []

    class Recorded(torch.optim.AdamW):
        def step(self, *arguments: Any) -> None:  # type: ignore[override]
            rates.append(self.param_groups[0]["lr"])
            groups[:] = self.param_groups
            super().step(*arguments)

    monkeypatch.setattr(torch.optim, "AdamW", Recorded)
    settings = AdapterSettings(**SETTINGS | {"learning_rate": 0.01, "max_epochs": 4})
    model, history = fit_adapter(BUILD, planted(90), planted(30, 1), settings)
    assert len(rates) == 3 * len(history) == 12
    assert rates == pytest.approx([0.005 * (1 + math.cos(math.pi * step / 12)) for step in range(12)], abs=1e-9)
    assert [group["weight_decay"] for group in groups] == [0.01, 0.0]
    assert all(p.dim() > 1 for p in groups[0]["params"])
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))


def test_loss_against_sklearn() -> None:
    generator = torch.Generator().manual_seed(0)
    logits, labels = 3 * torch.randn(20, generator=generator).double(), torch.randint(0, 2, (20,), generator=generator)
    p = torch.sigmoid(logits).numpy()
    expected = (1 - SMOOTHING / 2) * log_loss(labels, p) + SMOOTHING / 2 * log_loss(1 - labels, p)
    assert float(smoothed_cross_entropy(logits, labels)) == pytest.approx(expected)


def test_selection_against_sklearn() -> None:
    rows = planted(200)
    shared = torch.from_numpy(mutual_info_classif(rows[0].numpy(), rows[1].numpy(), random_state=7))
    for top_k in (1, 2, 5):
        assert top_features(rows, top_k, 7).tolist() == sorted(shared.argsort(descending=True)[:top_k].tolist())
    assert top_features(rows, 2, 0).tolist() == [1, 6]
    assert top_features(rows, 85, 0).tolist() == list(range(10))


def overconfident(num_rows: int = 400, *, times: float = 3.0, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that are ``times`` the true ones, and labels of the true ones."""
    generator = torch.Generator().manual_seed(seed)
    true = 2 * torch.randn(num_rows, generator=generator)
    return times * true, (torch.rand(num_rows, generator=generator) < torch.sigmoid(true)).long()


def nll(logits: Tensor, labels: Tensor, temperature: float) -> float:
    return float(F.binary_cross_entropy_with_logits(logits.double() / temperature, labels.double()))


@pytest.mark.parametrize("seed", range(4))
def test_the_temperature_against_a_grid(seed: int) -> None:
    logits, labels = overconfident(30, seed=seed)
    grid = torch.logspace(-1.2, 1.2, 2001, dtype=torch.float64).tolist()
    best = min(nll(logits, labels, temperature) for temperature in grid)
    assert nll(logits, labels, fit_temperature(logits, labels)) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("sign", "bound"), [(1, 1 / 20), (-1, 20)])
def test_rows_that_are_all_right_or_all_wrong_stop_at_a_bound(sign: int, bound: float) -> None:
    labels = torch.tensor([0, 1, 1, 0])
    assert fit_temperature(sign * (2.0 * labels - 1), labels) == pytest.approx(bound)


def test_the_models_temperature_is_set_and_lowers_the_loss() -> None:
    logits, labels = overconfident()
    model: Any = ComplexityAdapter(num_features=1, num_selected=1, hidden_channels=[2])
    model.logits = partial(torch.squeeze, dim=1)  # the feature is the logit
    features = logits.unsqueeze(1)
    before = model(features)
    found = calibrate(model, (features, labels))
    assert torch.equal(model(features), torch.sigmoid(logits / model.temperature))
    assert not torch.equal(model(features), before)
    assert 2 < float(model.temperature) == pytest.approx(found["temperature"])
    assert found["nll_before"] == pytest.approx(nll(logits, labels, 1))
    assert found["nll_before"] - 0.1 > found["nll_after"] == pytest.approx(nll(logits, labels, found["temperature"]))
    assert found["ece_after"] < found["ece_before"]


SECONDS = (0.1, 3.0, 3.2)


def choose(scores: Tensor, correct: Tensor, seconds: tuple[float, ...], **settings: Any) -> ThresholdChoice:
    return choose_thresholds(scores, correct, torch.tensor([seconds] * len(scores), dtype=torch.float64), **settings)


def queries(seed: int, num_queries: int = 14, levels: int = 9) -> tuple[Tensor, Tensor]:
    """Scores with ties, and paths that are right more or less often along them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(0, levels + 1, (num_queries,), generator=generator) / levels
    likely = torch.stack([1 - scores, scores, torch.full_like(scores, 0.7)], dim=1)
    return scores, (torch.rand(num_queries, 3, generator=generator) < likely).double()


def objective(scores: Tensor, correct: Tensor, low: float, high: float, price: float) -> float:
    total = 0.0
    for score, right in zip(scores.tolist(), correct.tolist(), strict=True):
        path = 0 if score <= low else 1 if score >= high else 2
        total += right[path] - price * SECONDS[path]
    return total / len(scores)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("price", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_against_brute_force(seed: int, price: float, fuse: bool) -> None:
    scores, correct = queries(seed)
    choice = choose(scores, correct, SECONDS, price=price, fuse=fuse)
    grid = [-0.5, *(k / 90 for k in range(91)), 1.5]
    pairs = [(low, high) for low in grid for high in grid if low < high] if fuse else [(k, k + 1e-9) for k in grid]
    best = max(objective(scores, correct, low, high, price) for low, high in pairs)
    assert choice.low < choice.high
    assert choice.objective == pytest.approx(best)
    assert choice.objective == pytest.approx(objective(scores, correct, choice.low, choice.high, price))
    assert choice.objective == pytest.approx(choice.accuracy - price * choice.seconds)
    assert sum(choice.shares.values()) == pytest.approx(1)
    if fuse:
        assert choice.objective >= max(choice.alone.values()) - 1e-9  # each path alone is among the choices
    else:
        assert choice.shares["fusion"] == 0


def test_seconds_are_of_each_query() -> None:
    scores = torch.tensor([0.9, 0.1, 0.5])
    seconds = torch.tensor([[9.0, 1.0, 9.0], [1.0, 9.0, 9.0], [9.0, 9.0, 1.0]])
    choice = choose_thresholds(scores, torch.ones(3, 3), seconds, price=0.1)
    assert choice.seconds == 1
    assert choose_routes(scores, choice.low, choice.high).tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match=r"`price` must be finite and not negative, got -0\.1"):
        choose_thresholds(scores, torch.ones(3, 3), seconds, price=-0.1)
    with pytest.raises(ValueError, match="got 1 of the rarer one"):
        early_stopping_split((torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])), 0)


@pytest.mark.parametrize("path", range(4))
def test_one_path_for_all_holds_for_any_later_score(path: int) -> None:
    right = [1, 1, 1] if path == 3 else [int(path == route) for route in range(3)]  # at last the fastest of all
    seconds, expected = ((2.0, 1.0, 3.0), 1) if path == 3 else (SECONDS, path)
    choice = choose(torch.tensor([0.4, 0.5, 0.6]), torch.tensor([right] * 3).double(), seconds, price=0.0)
    assert choice.accuracy == 1
    assert choose_routes(torch.tensor([0.0, 0.3, 0.5, 0.7, 1.0]), choice.low, choice.high).tolist() == [expected] * 5


def test_scores_a_rounding_apart_are_parted() -> None:
    choice = choose(torch.tensor([0.5, 0.5 + 2**-24]), torch.eye(3)[:2].double(), SECONDS, price=0.0)
    assert (choice.accuracy, choice.shares) == (1, {"dense": 0.5, "graph": 0.5, "fusion": 0.0})
