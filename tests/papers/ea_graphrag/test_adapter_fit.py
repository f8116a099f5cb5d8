from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from graphrerank.pipelines.router import choose_routes
from graphrerank_papers.ea_graphrag import adapter_fit
from graphrerank_papers.ea_graphrag.adapter_module import AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from tests.papers.ea_graphrag.rows import build, planted


def test_same_rows_and_settings_give_the_same_weights() -> None:
    def weights(seed: int) -> dict[str, Tensor]:
        torch.manual_seed(int(torch.randint(1000, ())))  # what was drawn before must not matter
        before = torch.get_rng_state()
        model = adapter_fit.build_adapter(build, planted(60), adapter_fit.AdapterSettings(num_selected=6, seed=seed))
        assert torch.equal(before, torch.get_rng_state())
        return dict(model.state_dict())

    first, second, other = weights(0), weights(0), weights(1)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["lin_out.weight"], other["lin_out.weight"])


def test_features_and_z_scores_are_of_the_given_rows() -> None:
    train = planted(60)
    model = adapter_fit.build_adapter(build, train, adapter_fit.AdapterSettings(num_selected=6))
    assert model.selected.tolist() == adapter_fit.top_features(train, 6, 0).tolist()
    columns = train.features[:, model.selected].double()
    torch.testing.assert_close(model.mean.double(), columns.mean(0))
    torch.testing.assert_close(model.std.double(), columns.std(0, correction=0), rtol=1e-5, atol=0)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("max_epochs", "trainer.max_epochs"),
        ("patience", "callbacks.early_stopping.patience"),
        ("learning_rate", "module.learning_rate"),
    ],
)
def test_settings_that_moved_are_named(name: str, place: str) -> None:
    settings: dict[str, Any] = {name: 8}
    with pytest.raises(ValueError, match=f"`job.settings.{name}` has moved to `{place}`: set {place}=8"):
        adapter_fit.AdapterSettings(**settings)


def test_folds_are_stratified_and_hold_every_row_once() -> None:
    rows = AdapterRows(torch.arange(23.0).unsqueeze(1), (torch.arange(23) < 7).long())
    folds = adapter_fit.stratified_folds(rows, 5, seed=1)
    assert len(folds) == 5
    assert sorted(value for _, own in folds for value in own.features.flatten().tolist()) == list(range(23))
    for others, own in folds:
        assert set(others.features.flatten().tolist()).isdisjoint(own.features.flatten().tolist())
        assert len(others.labels) + len(own.labels) == 23
        assert int(own.labels.sum()) in (1, 2)
    same, other = adapter_fit.stratified_folds(rows, 5, seed=1), adapter_fit.stratified_folds(rows, 5, seed=2)
    assert torch.equal(folds[0][1].features, same[0][1].features)
    assert not torch.equal(folds[0][1].features, other[0][1].features)


@pytest.mark.parametrize(("rarer", "num_folds"), [(4, 5), (3, 2), (2, 2)])
def test_too_many_folds_are_refused(rarer: int, num_folds: int) -> None:
    rows = AdapterRows(torch.zeros(20, 1), (torch.arange(20) < rarer).long())
    with pytest.raises(ValueError, match=rf"`job\.folds` must be 0, .* rarer class \({rarer}.*got {num_folds}"):
        adapter_fit.stratified_folds(rows, num_folds, seed=0)


def test_selection_against_sklearn() -> None:
    rows = planted(200)
    shared = torch.from_numpy(mutual_info_classif(rows[0].numpy(), rows[1].numpy(), random_state=7))
    for top_k in (1, 2, 5):
        assert adapter_fit.top_features(rows, top_k, 7).tolist() == sorted(
            shared.argsort(descending=True)[:top_k].tolist()
        )
    assert adapter_fit.top_features(rows, 2, 0).tolist() == [1, 6]
    assert adapter_fit.top_features(rows, 85, 0).tolist() == list(range(10))


def test_mutual_information_is_estimated_once_for_the_same_rows_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    estimated = []

    def estimate(features: Any, labels: Any, random_state: int) -> Any:
        estimated.append(random_state)
        return mutual_info_classif(features, labels, random_state=random_state)

    monkeypatch.setattr(adapter_fit, "mutual_info_classif", estimate)
    adapter_fit._mutual_information.cache_clear()
    rows = planted(60)
    for top_k in (1, 2, 1):
        adapter_fit.top_features(rows, top_k, 3)
    assert estimated == [3]
    adapter_fit.top_features(rows, 1, 4)
    adapter_fit.top_features(AdapterRows(rows.features, 1 - rows.labels), 1, 4)
    adapter_fit.top_features(AdapterRows(rows.features + 1e-3, rows.labels), 1, 4)
    assert estimated == [3, 4, 4, 4]


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
    assert nll(logits, labels, adapter_fit.fit_temperature(logits, labels)) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(("sign", "bound"), [(1, 1 / 20), (-1, 20)])
def test_rows_that_are_all_right_or_all_wrong_stop_at_a_bound(sign: int, bound: float) -> None:
    labels = torch.tensor([0, 1, 1, 0])
    assert adapter_fit.fit_temperature(sign * (2.0 * labels - 1), labels) == pytest.approx(bound)


def test_the_models_temperature_is_set_and_lowers_the_loss() -> None:
    logits, labels = overconfident()
    model: Any = ComplexityAdapter(num_features=1, num_selected=1, hidden_channels=[2])
    model.logits = partial(torch.squeeze, dim=1)  # the feature is the logit
    features = logits.unsqueeze(1)
    before = model(features)
    found = adapter_fit.calibrate_temperature(model, AdapterRows(features, labels))
    assert torch.equal(model(features), torch.sigmoid(logits / model.temperature))
    assert not torch.equal(model(features), before)
    assert 2 < float(model.temperature) == pytest.approx(found["temperature"])
    assert found["nll_before"] == pytest.approx(nll(logits, labels, 1))
    assert found["nll_before"] - 0.1 > found["nll_after"] == pytest.approx(nll(logits, labels, found["temperature"]))
    assert found["ece_after"] < found["ece_before"]


SECONDS = (0.1, 3.0, 3.2)


def choose(scores: Tensor, correct: Tensor, seconds: tuple[float, ...], **settings: Any) -> adapter_fit.ThresholdChoice:
    return adapter_fit.choose_thresholds(
        scores, correct, torch.tensor([seconds] * len(scores), dtype=torch.float64), **settings
    )


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
    choice = adapter_fit.choose_thresholds(scores, torch.ones(3, 3), seconds, price=0.1)
    assert choice.seconds == 1
    assert choose_routes(scores, choice.low, choice.high).tolist() == [1, 0, 2]
    with pytest.raises(ValueError, match=r"`price` must be finite and non-negative, got -0\.1"):
        adapter_fit.choose_thresholds(scores, torch.ones(3, 3), seconds, price=-0.1)
    with pytest.raises(ValueError, match="got 1 of the rarer class"):
        adapter_fit.early_stopping_split(AdapterRows(torch.zeros(4, 2), torch.tensor([0, 0, 0, 1])), 0)


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
