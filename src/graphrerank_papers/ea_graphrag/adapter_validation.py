"""The adapter against scikit-learn's classifiers on few rows: nested cross-validation and a learning curve."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphrerank.evaluation.tables import markdown_table
from graphrerank_papers.ea_graphrag.adapter_fit import (
    AdapterSettings,
    BuildAdapter,
    LabelledRows,
    calibrate,
    fit_adapter,
)

MEASURES = {"AUC": "roc_auc", "accuracy": "accuracy", "log loss": "neg_log_loss"}


class TopFeatures(TransformerMixin, BaseEstimator):
    """Keeps the columns that share most information with the label (:meth:`LabelledRows.top_features`)."""

    def __init__(self, num_selected: int = 85, seed: int = 0) -> None:
        self.num_selected, self.seed = num_selected, seed

    def fit(self, features: np.ndarray, labels: np.ndarray) -> "TopFeatures":
        """Choose the columns of ``[n, F]`` by ``[n]`` labels."""
        self.columns_ = _rows(features, labels, self.seed).top_features(self.num_selected).numpy()
        return self

    def transform(self, features: np.ndarray) -> np.ndarray:
        """Return the chosen columns."""
        return features[:, self.columns_]


class AdapterClassifier(ClassifierMixin, BaseEstimator):
    """The adapter, trained and calibrated with a fifth of the rows kept back for both."""

    def __init__(self, build: BuildAdapter, num_selected: int = 85, dropout: float = 0.3, seed: int = 0) -> None:
        self.build, self.num_selected, self.dropout, self.seed = build, num_selected, dropout, seed

    def fit(self, features: np.ndarray, labels: np.ndarray) -> "AdapterClassifier":
        """Train on ``[n, F]`` raw features and ``[n]`` labels."""
        train, held = _rows(features, labels, self.seed).early_stopping_split
        settings = AdapterSettings(num_selected=self.num_selected, dropout=self.dropout, seed=self.seed)
        self.model_ = fit_adapter(self.build, train, held, settings).model
        calibrate(self.model_, held)
        self.classes_ = np.array([0, 1])
        return self

    @torch.inference_mode()
    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Return the probabilities of both classes, ``[n, 2]``."""
        scores = self.model_(torch.from_numpy(features)).double().numpy()
        return np.stack([1 - scores, scores], axis=1)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the likelier classes, ``[n]``."""
        return (self.predict_proba(features)[:, 1] >= 0.5).astype(np.int64)


def classifiers(build: BuildAdapter, *, top_k: int = 85, seed: int = 0) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Return the classifiers to compare, each with its grid, from the most to the least restrained settings.

    ``top_k`` is the paper's number of features; a fifth of it is tried, too.
    """
    widths = [max(1, top_k // 5), top_k]
    logistic = make_pipeline(TopFeatures(seed=seed), StandardScaler(), LogisticRegression(max_iter=2000))
    boosting = make_pipeline(
        TopFeatures(seed=seed), GradientBoostingClassifier(n_estimators=100, subsample=0.8, random_state=seed)
    )
    return {
        "majority class": (DummyClassifier(strategy="prior"), {}),
        "logistic regression": (
            logistic,
            {"topfeatures__num_selected": widths, "logisticregression__C": [0.01, 0.1, 1.0]},
        ),
        "gradient boosting": (
            boosting,
            {"topfeatures__num_selected": widths, "gradientboostingclassifier__max_depth": [1, 3]},
        ),
        "MLP adapter": (AdapterClassifier(build, seed=seed), {"num_selected": widths, "dropout": [0.5, 0.3]}),
    }


def compare_classifiers(
    rows: LabelledRows,
    compared: dict[str, tuple[Any, dict[str, Any]]],
    *,
    num_folds: int = 5,
    num_inner_folds: int = 3,
    shares: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0),
) -> str:
    """Estimate how good each classifier is on rows that nothing of it has seen: two tables in Markdown.

    For each outer fold the other rows choose the setting, by the mean AUC of their inner folds, and then train; the
    fold is only scored. Features, z-scores, early stopping and temperature are of the training rows at each level. The
    learning curve trains on shares of the rows with the setting that most folds chose.

    Source: Stone, "Cross-validatory choice and assessment of statistical predictions", 1974; Varma and Simon, "Bias in
    error estimation when using cross-validation for model selection", 2006.

    Args:
        rows: All rows.
        compared: By name, an estimator of scikit-learn and its grid.
        num_folds: Outer folds.
        num_inner_folds: Inner folds.
        shares: Of each fold's training rows, in (0, 1].

    Raises:
        ValueError: If the rarer class has fewer rows than there are folds.
    """
    rarer = int(rows.labels.long().bincount().min())
    if not 2 <= num_folds <= rarer:
        raise ValueError(f"`num_folds` must lie in 2 to the rows of the rarer class, {rarer}, got {num_folds}")
    features, labels = rows.features.numpy(), rows.labels.numpy()
    outer, inner = (StratifiedKFold(n, shuffle=True, random_state=rows.seed) for n in (num_folds, num_inner_folds))
    measured, curves = [], []
    for name, (estimator, grid) in compared.items():
        search = GridSearchCV(estimator, grid, scoring="roc_auc", cv=inner)
        folds = cross_validate(search, features, labels, cv=outer, scoring=MEASURES, return_estimator=True)
        chosen = Counter(tuple(fold.best_params_.items()) for fold in folds["estimator"])
        settings = (f"{count}x {_shown(setting)}" for setting, count in chosen.most_common())
        measured.append([name, *(_text(np.abs(folds[f"test_{measure}"])) for measure in MEASURES), "; ".join(settings)])
        best = search.estimator.set_params(**dict(chosen.most_common(1)[0][0]))
        sizes, _, scores = learning_curve(
            best, features, labels, cv=outer, train_sizes=list(shares), scoring="roc_auc", shuffle=True,
            random_state=rows.seed,
        )  # fmt: skip
        curves.append([name, *map(_text, scores)])
    return "\n\n".join(
        [
            markdown_table(["classifier", *MEASURES, "settings chosen"], measured),
            markdown_table(["AUC after training on rows", *map(str, sizes)], curves),
        ]
    )


def _rows(features: np.ndarray, labels: np.ndarray, seed: int) -> LabelledRows:
    return LabelledRows(torch.from_numpy(features), torch.from_numpy(labels), seed)


def _shown(setting: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{key.rpartition('__')[2]}={value}" for key, value in setting) or "-"


def _text(numbers: np.ndarray) -> str:
    """Show the mean over folds and the deviation between them (no estimate of the mean's error)."""
    return f"{numbers.mean():.3f} ± {numbers.std():.3f}"
