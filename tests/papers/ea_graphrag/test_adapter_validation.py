import json
import logging
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_classifiers import (
    Classifier,
    default_classifiers,
    fit_logistic_regression,
    fit_majority,
    fit_mlp,
)
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows
from graphrerank_papers.ea_graphrag.adapter_validation import (
    comparison_table,
    draw_learning_curve,
    learning_curve,
    learning_curve_table,
    measure,
    nested_cross_validation,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

BUILD = partial(ComplexityAdapter, hidden_channels=[16, 16])
LOGISTIC = Classifier(fit_logistic_regression, [{"num_selected": k, "inverse_penalty": 1.0} for k in (4, 10)])
MAJORITY = Classifier(fit_majority, [{}])


@pytest.fixture(autouse=True)
def quiet() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)


def noise(num_rows: int, num_features: int, seed: int = 0, *, signal: float = 0.0) -> LabelledRows:
    """Features that know nothing of the labels but, times ``signal``, the first one."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_rows, num_features, generator=generator)
    labels = (torch.randn(num_rows, generator=generator) + signal * features[:, 0] > 0.3).long()
    return LabelledRows(features, labels)


def small_classifiers() -> dict[str, Classifier]:
    made = default_classifiers(BUILD, top_k=8)
    boosting = Classifier(made["gradient boosting"].fit, [{"num_selected": k, "num_trees": 20} for k in (2, 8)])
    mlp = Classifier(made["MLP adapter"].fit, [{"num_selected": 8, "max_epochs": 12, "learning_rate": 5e-3}])
    return made | {"gradient boosting": boosting, "MLP adapter": mlp}


def test_random_labels_are_not_predicted_and_a_signal_is() -> None:
    classifiers = small_classifiers()
    for signal, low, high in ((0.0, 0.4, 0.6), (4.0, 0.85, 1.0)):
        results = nested_cross_validation(noise(160, 10, signal=signal), classifiers, num_folds=2, num_inner_folds=2)
        assert list(results) == ["majority class", "logistic regression", "gradient boosting", "MLP adapter"]
        assert results.pop("majority class").mean_and_std("AUC") == (0.5, 0.0)
        for name, result in results.items():
            assert low < result.mean_and_std("AUC")[0] < high, name
            assert bool(result.scores.isfinite().all())


def test_selection_within_the_folds_shows_no_signal_where_selection_outside_does() -> None:
    rows = noise(40, 200)
    top = rows.top_features(15)

    def leaky(rows: LabelledRows) -> tuple[Any, Tensor]:
        score, _ = fit_logistic_regression(LabelledRows(rows.features[:, top], rows.labels), num_selected=15)
        return lambda features: score(features[:, top]), top

    honest = Classifier(fit_logistic_regression, [{"num_selected": 15}])
    results = nested_cross_validation(rows, {"honest": honest, "leaky": Classifier(leaky, [{}])}, num_folds=4)
    assert results["honest"].mean_and_std("AUC")[0] < 0.65
    assert results["leaky"].mean_and_std("AUC")[0] > 0.85


@pytest.mark.parametrize(
    "classifier",
    [LOGISTIC, Classifier(partial(fit_mlp, build=BUILD), [{"num_selected": 5, "max_epochs": 1}])],
    ids=["logistic", "mlp"],
)
def test_what_a_fold_learns_does_not_hang_on_its_test_rows(classifier: Classifier) -> None:
    rows = noise(60, 12, signal=1.0)
    _, test = rows.folds(3)[0]
    features = rows.features.clone()
    features[test] = 1e3 * torch.randn(len(test), 12, generator=torch.Generator().manual_seed(1))
    changed = LabelledRows(features, rows.labels)
    one, two = (nested_cross_validation(made, {"a": classifier}, num_folds=3)["a"] for made in (rows, changed))
    assert one.folds[0].setting == two.folds[0].setting
    assert one.folds[0].selected == two.folds[0].selected
    assert [fold.selected for fold in one.folds[1:]] != [fold.selected for fold in two.folds[1:]]


def test_each_row_is_scored_by_a_fit_on_the_other_folds() -> None:
    rows = noise(45, 8, signal=2.0)
    classifier = Classifier(fit_logistic_regression, [{"num_selected": 4, "inverse_penalty": 0.5}])
    result = nested_cross_validation(rows, {"a": classifier}, num_folds=3)["a"]
    for fold, (train, test) in zip(result.folds, rows.folds(3), strict=True):
        score, selected = fit_logistic_regression(rows.take(train), num_selected=4, inverse_penalty=0.5)
        assert torch.equal(result.scores[test], score(rows.features[test]))
        assert fold.selected == selected.tolist()
        assert fold.measures["AUC"] == area_under_roc(result.scores[test], rows.labels[test])


def test_inner_folds_choose_the_setting_that_works() -> None:
    def fit(rows: LabelledRows, *, column: int) -> tuple[Any, Tensor]:
        return lambda features: torch.sigmoid(features[:, column]), torch.tensor([column])

    classifier = Classifier(fit, [{"column": 3}, {"column": 0}, {"column": 1}])
    result = nested_cross_validation(noise(100, 5, signal=3.0), {"a": classifier})["a"]
    assert [fold.setting for fold in result.folds] == [{"column": 0}] * 5


def test_repeats_exactly() -> None:
    classifiers = small_classifiers()
    del classifiers["logistic regression"], classifiers["majority class"]
    first, second = (
        nested_cross_validation(noise(40, 6, signal=1.0), classifiers, num_folds=2, num_inner_folds=2) for _ in range(2)
    )
    for name in classifiers:
        assert first[name].folds == second[name].folds
        assert torch.equal(first[name].scores, second[name].scores)


def test_learning_curve_ends_at_the_cross_validation_and_rises(tmp_path: Path) -> None:
    rows = noise(120, 10, signal=2.0)
    classifiers = {"logistic regression": LOGISTIC, "majority class": MAJORITY}
    results = nested_cross_validation(rows, classifiers, num_folds=4)
    points = learning_curve(rows, classifiers, results, shares=(0.15, 1.0))
    assert [(point.classifier, round(point.num_rows)) for point in points] == [
        ("logistic regression", 14), ("majority class", 14), ("logistic regression", 90), ("majority class", 90)
    ]  # fmt: skip
    for point in points[2:]:
        for key, found in point.measures.items():
            assert found == pytest.approx(results[point.classifier].mean_and_std(key))
    assert points[2].measures["AUC"][0] > points[0].measures["AUC"][0] + 0.03
    json.dumps([asdict(point) for point in points])
    json.dumps([asdict(fold) for result in results.values() for fold in result.folds])

    auc, std = results["logistic regression"].mean_and_std("AUC")
    table = comparison_table(results)
    assert table.splitlines()[0] == "| classifier | AUC | accuracy | log loss | features | settings chosen |"
    assert f"| logistic regression | {auc:.3f} ± {std:.3f} |" in table
    assert "| majority class | 0.500 ± 0.000 |" in table
    assert table.splitlines()[3].endswith("| 0 | 4x - |")
    curve = learning_curve_table(points)
    assert curve.splitlines()[0] == "| AUC after training on rows | 14 | 90 |"
    assert curve.splitlines()[2].endswith(f"| {auc:.3f} ± {std:.3f} |")
    draw_learning_curve(tmp_path / "curve.png", points)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_measures_by_hand() -> None:
    found = measure(torch.tensor([0.8, 0.5, 0.5, 0.0]), torch.tensor([1, 0, 1, 0]))
    expected = -(torch.tensor([0.8, 0.5, 0.5, 1.0]).log().mean().item())
    assert found == {"AUC": 0.875, "accuracy": 0.75, "log loss": pytest.approx(expected, abs=1e-6)}


def test_fewer_rows_of_a_class_than_folds_are_refused() -> None:
    few = LabelledRows(torch.randn(20, 3), (torch.arange(20) < 4).long())
    with pytest.raises(ValueError, match="`num_folds` must lie in 2 to the rows of the rarer class, 4, got 5"):
        nested_cross_validation(few, {"a": MAJORITY})
    with pytest.raises(ValueError, match="`num_folds` must lie in 2 to the rows of the rarer class, 3, got 4"):
        nested_cross_validation(few, {"a": MAJORITY}, num_folds=4, num_inner_folds=4)
    results = nested_cross_validation(few, {"a": MAJORITY}, num_folds=4)
    with pytest.raises(ValueError, match=r"`shares` must lie in \(0, 1\], got 0"):
        learning_curve(few, {"a": MAJORITY}, results, shares=[0, 0.5, 1.5])
    with pytest.raises(ValueError, match="`grid` must hold one or more settings"):
        Classifier(fit_majority, [])
