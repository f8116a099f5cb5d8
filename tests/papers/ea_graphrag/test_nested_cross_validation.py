import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, build_adapter
from graphrerank_papers.ea_graphrag.adapter_module import AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from graphrerank_papers.ea_graphrag.nested_cross_validation import (
    AdapterClassifier,
    TopFeatures,
    adapter_and_baselines,
    nested_cross_validation,
)
from tests.papers.ea_graphrag.rows import build


def untrained(rows: AdapterRows, settings: AdapterSettings) -> ComplexityAdapter:
    """Build an adapter instead of training one."""
    return build_adapter(build, rows, settings).eval()


def noise(num_rows: int, num_features: int, *, signal: float = 0.0) -> AdapterRows:
    """Features that know nothing of the labels except, times ``signal``, the first one."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(num_rows, num_features, generator=generator)
    labels = (torch.randn(num_rows, generator=generator) + signal * features[:, 0] > 0.3).long()
    return AdapterRows(features, labels)


def test_against_loops() -> None:
    rows = noise(90, 6, signal=1.5)
    classifier = adapter_and_baselines(untrained, num_selected=5)["logistic regression"]
    x, y = rows.features.numpy(), rows.labels.numpy()
    settings = [
        {"topfeatures__num_selected": width, "logisticregression__C": c}
        for c in classifier.grid["logisticregression__C"]
        for width in classifier.grid["topfeatures__num_selected"]
    ]

    def auc(setting: dict[str, float], train: np.ndarray, test: np.ndarray) -> float:
        fitted = clone(classifier.estimator).set_params(**setting).fit(x[train], y[train])
        return area_under_roc(torch.from_numpy(fitted.predict_proba(x[test])[:, 1]), rows.labels[test])

    expected = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x, y):
        inner = list(StratifiedKFold(2, shuffle=True, random_state=0).split(x[train], y[train]))
        means = [sum(auc(setting, train[a], train[b]) for a, b in inner) for setting in settings]
        expected.append(auc(settings[means.index(max(means))], train, test))
    result = nested_cross_validation(classifier, rows, num_folds=3, num_inner_folds=2, shares=[0.5, 1.0])
    assert result["measures"]["AUC"] == pytest.approx(np.mean(expected))
    assert result["measures"]["AUC deviation"] == pytest.approx(np.std(expected))
    assert [point["rows"] for point in result["curve"]] == [30, 60]


def test_the_majority_class_knows_nothing() -> None:
    classifier = adapter_and_baselines(untrained)["majority class"]
    result = nested_cross_validation(classifier, noise(40, 3), num_folds=2, num_inner_folds=2, shares=[1.0])
    assert (result["measures"]["AUC"], result["settings"]) == (0.5, "2x -")
    assert result["measures"]["log loss"] == pytest.approx(math.log(2), abs=0.1)


def test_classifiers_and_their_choices() -> None:
    classifiers = adapter_and_baselines(untrained, num_selected=50)
    assert list(classifiers) == ["majority class", "logistic regression", "gradient boosting", "MLP adapter"]
    assert classifiers["MLP adapter"].grid == {"num_selected": [10, 50], "dropout": [0.5, 0.3]}


def test_features_are_selected_on_training_rows_alone() -> None:
    rows = noise(80, 6, signal=3.0)
    select = TopFeatures(num_selected=1).fit(rows.features.numpy(), rows.labels.numpy())
    assert select.columns_.tolist() == [0]
    other = noise(5, 6).features.numpy()
    assert (select.transform(other) == other[:, :1]).all()


def test_the_adapter_gets_its_rows_and_settings() -> None:
    rows = noise(80, 6, signal=2.0)
    x, y = rows.features.numpy(), rows.labels.numpy()
    classifier = AdapterClassifier(untrained, num_selected=4, dropout=0.2, seed=3).fit(x, y)
    expected = untrained(rows, AdapterSettings(num_selected=4, dropout=0.2, seed=3))
    with torch.inference_mode():
        scores = expected(rows.features)
    both = classifier.predict_proba(x)
    torch.testing.assert_close(torch.from_numpy(both[:, 1]).float(), scores)
    assert both.sum(1) == pytest.approx(1)
    assert (classifier.predict(x) == (scores >= 0.5).numpy()).all()


def test_nested_folds_train_the_adapter_for_every_choice() -> None:
    sizes: list[int] = []

    def train(rows: AdapterRows, settings: AdapterSettings) -> ComplexityAdapter:
        sizes.append(len(rows.labels))
        return untrained(rows, settings)

    classifier = adapter_and_baselines(train, num_selected=5)["MLP adapter"]
    nested_cross_validation(classifier, noise(40, 6), num_folds=2, num_inner_folds=2, shares=[1.0])
    # Per outer fold: four choices on each of two inner folds, and the best one on the fold's training rows.
    assert sizes == [10] * 8 + [20] + [10] * 8 + [20] + [20] * 2
