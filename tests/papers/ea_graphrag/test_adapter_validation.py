from functools import partial

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.model_selection import StratifiedKFold

from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, LabelledRows, calibrate, fit_adapter
from graphrerank_papers.ea_graphrag.adapter_validation import (
    AdapterClassifier,
    TopFeatures,
    classifiers,
    compare_classifiers,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

BUILD = partial(ComplexityAdapter, hidden_channels=[16, 16])


def noise(num_rows: int, num_features: int, seed: int = 0, *, signal: float = 0.0) -> LabelledRows:
    """Features that know nothing of the labels but, times ``signal``, the first one."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(num_rows, num_features, generator=generator)
    labels = (torch.randn(num_rows, generator=generator) + signal * features[:, 0] > 0.3).long()
    return LabelledRows(features, labels)


def cells(table: str, name: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {name} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_features_chosen_within_the_folds_know_nothing_of_noise() -> None:
    """With 200 features chosen on all rows, the AUC of pure noise is far above one half."""
    rows = noise(60, 200)
    compared = {name: entry for name, entry in classifiers(BUILD, top_k=10).items() if name == "logistic regression"}
    auc = float(cells(compare_classifiers(rows, compared, shares=[1.0]), "logistic regression")[0].split()[0])
    assert auc < 0.65
    leaked = np.abs(np.corrcoef(rows.features.T, rows.labels)[-1, :-1]).argsort()[-10:].copy()
    narrow = LabelledRows(rows.features[:, leaked], rows.labels)
    auc = float(cells(compare_classifiers(narrow, compared, shares=[1.0]), "logistic regression")[0].split()[0])
    assert auc > 0.7


def test_nested_cross_validation_against_loops() -> None:
    rows = noise(90, 6, signal=1.5)
    model, grid = classifiers(BUILD, top_k=5)["logistic regression"]
    x, y = rows.features.numpy(), rows.labels.numpy()
    settings = [
        {"topfeatures__num_selected": k, "logisticregression__C": c}
        for c in grid["logisticregression__C"]
        for k in grid["topfeatures__num_selected"]
    ]

    def auc(setting: dict[str, float], train: np.ndarray, test: np.ndarray) -> float:
        fitted = clone(model).set_params(**setting).fit(x[train], y[train])
        return area_under_roc(torch.from_numpy(fitted.predict_proba(x[test])[:, 1]), rows.labels[test])

    found = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x, y):
        inner = list(StratifiedKFold(2, shuffle=True, random_state=0).split(x[train], y[train]))
        means = [sum(auc(setting, train[a], train[b]) for a, b in inner) for setting in settings]
        found.append(auc(settings[means.index(max(means))], train, test))
    compared = {"logistic": (model, grid)}
    table = compare_classifiers(rows, compared, num_folds=3, num_inner_folds=2, shares=[1.0])
    assert cells(table, "logistic")[0] == f"{np.mean(found):.3f} ± {np.std(found):.3f}"


def test_the_adapter_is_trained_and_calibrated_on_its_rows_alone() -> None:
    rows = noise(80, 6, signal=2.0)
    train, held = rows.early_stopping_split
    expected = fit_adapter(BUILD, train, held, AdapterSettings(num_selected=4, dropout=0.2)).model
    calibrate(expected, held)
    found = AdapterClassifier(BUILD, num_selected=4, dropout=0.2).fit(rows.features.numpy(), rows.labels.numpy())
    with torch.inference_mode():
        scores = expected(rows.features)
    both = found.predict_proba(rows.features.numpy())
    torch.testing.assert_close(torch.from_numpy(both[:, 1]).float(), scores)
    assert both.sum(1) == pytest.approx(1)
    assert (found.predict(rows.features.numpy()) == (scores >= 0.5).numpy()).all()


def test_chosen_columns() -> None:
    rows = noise(200, 8, signal=3.0)
    kept = TopFeatures(num_selected=3).fit_transform(rows.features.numpy(), rows.labels.numpy())
    assert (kept == rows.features[:, rows.top_features(3)].numpy()).all()


def test_all_classifiers_are_compared() -> None:
    rows = noise(60, 5, signal=2.0)
    table = compare_classifiers(rows, classifiers(BUILD, top_k=4), num_folds=2, num_inner_folds=2, shares=[0.5, 1.0])
    first, second = table.split("\n\n")
    for part in (first, second):
        names = [line.split("|")[1].strip() for line in part.splitlines()[2:]]
        assert names == ["majority class", "logistic regression", "gradient boosting", "MLP adapter"]
    assert cells(first, "majority class")[0] == "0.500 ± 0.000"
    assert cells(first, "majority class")[-1] == "2x -"
    assert second.startswith("| AUC after training on rows | 15 | 30 |")
    assert float(cells(first, "logistic regression")[0].split()[0]) > 0.75


def test_fewer_rows_of_a_class_than_folds_are_refused() -> None:
    few = LabelledRows(torch.randn(20, 3), (torch.arange(20) < 4).long())
    with pytest.raises(ValueError, match="`num_folds` must lie in 2 to the rows of the rarer class, 4, got 5"):
        compare_classifiers(few, {"a": (DummyClassifier(), {})})
