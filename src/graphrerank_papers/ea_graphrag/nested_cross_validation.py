"""Compare the complexity adapter with other classifiers of the same features by nested cross-validation."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, top_features
from graphrerank_papers.ea_graphrag.adapter_module import AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

#: Measures of a classifier, and the names of their scorers in scikit-learn.
MEASURES = {"AUC": "roc_auc", "accuracy": "accuracy", "log loss": "neg_log_loss"}

#: Function that trains and calibrates an adapter on rows.
TrainAdapter = Callable[[AdapterRows, AdapterSettings], ComplexityAdapter]


class TunedClassifier(NamedTuple):
    """Classifier whose settings are chosen by cross-validation.

    Attributes:
        estimator: Classifier with the interface of scikit-learn.
        grid: Choices of each setting, by the name of the setting in scikit-learn.
    """

    estimator: Any
    grid: Mapping[str, Sequence[Any]]


class RowsEstimator(BaseEstimator, ABC):
    """Estimator of scikit-learn that is fitted on the rows of a complexity adapter."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> Self:
        """Fit the estimator.

        Args:
            features: Raw features ``[n, F]``.
            labels: Labels ``[n]``, 0 or 1.

        Returns:
            This object.
        """
        self.fit_rows(AdapterRows(torch.from_numpy(features), torch.from_numpy(labels)))
        return self

    @abstractmethod
    def fit_rows(self, rows: AdapterRows) -> None:
        """Fit the estimator on rows.

        Args:
            rows: Raw features and labels.
        """


class TopFeatures(TransformerMixin, RowsEstimator):
    """Select columns by :func:`~graphrerank_papers.ea_graphrag.adapter_fit.top_features`.

    Args:
        num_selected: Number of columns to select.
        seed: Random seed of the selection.
    """

    def __init__(self, num_selected: int = 85, seed: int = 0) -> None:
        self.num_selected, self.seed = num_selected, seed

    def fit_rows(self, rows: AdapterRows) -> None:
        """Choose the columns.

        Args:
            rows: Raw features and labels.
        """
        self.columns_ = top_features(rows, self.num_selected, self.seed).numpy()

    def transform(self, features: np.ndarray) -> np.ndarray:
        """Return the chosen columns.

        Args:
            features: Raw features ``[n, F]``.

        Returns:
            Features ``[n, num_selected]``.
        """
        return features[:, self.columns_]


class AdapterClassifier(ClassifierMixin, RowsEstimator):
    """Complexity adapter with the interface of scikit-learn.

    Args:
        train: Function that trains and calibrates an adapter.
        num_selected: Number of features to select.
        dropout: Dropout probability of the hidden layers.
        seed: Random seed of the training.
    """

    def __init__(self, train: TrainAdapter, num_selected: int = 85, dropout: float = 0.3, seed: int = 0) -> None:
        self.train, self.num_selected, self.dropout, self.seed = train, num_selected, dropout, seed

    def fit_rows(self, rows: AdapterRows) -> None:
        """Train an adapter.

        Args:
            rows: Raw features and labels.
        """
        settings = AdapterSettings(num_selected=self.num_selected, dropout=self.dropout, seed=self.seed)
        self.model_ = self.train(rows, settings)
        self.classes_ = np.array([0, 1])

    @torch.inference_mode()
    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Return the probabilities of both classes.

        Args:
            features: Raw features ``[n, F]``.

        Returns:
            Probabilities ``[n, 2]``.
        """
        scores = self.model_(torch.from_numpy(features)).double().numpy()
        return np.stack([1 - scores, scores], axis=1)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the more probable classes.

        Args:
            features: Raw features ``[n, F]``.

        Returns:
            Classes ``[n]``, 0 or 1.
        """
        return (self.predict_proba(features)[:, 1] >= 0.5).astype(np.int64)


def adapter_and_baselines(train: TrainAdapter, *, num_selected: int = 85, seed: int = 0) -> dict[str, TunedClassifier]:
    """Return the classifiers to compare, each with the choices of its settings.

    Args:
        train: Function that trains and calibrates an adapter.
        num_selected: Number of features to select. A fifth of it is the other choice.
        seed: Random seed of all classifiers.

    Returns:
        Classifiers by name.
    """
    widths = [max(1, num_selected // 5), num_selected]
    logistic = make_pipeline(TopFeatures(seed=seed), StandardScaler(), LogisticRegression(max_iter=2000))
    trees = GradientBoostingClassifier(n_estimators=100, subsample=0.8, random_state=seed)
    boosting = make_pipeline(TopFeatures(seed=seed), trees)
    selected = {"topfeatures__num_selected": widths}
    return {
        "majority class": TunedClassifier(DummyClassifier(strategy="prior"), {}),
        "logistic regression": TunedClassifier(logistic, {**selected, "logisticregression__C": [0.01, 0.1, 1.0]}),
        "gradient boosting": TunedClassifier(boosting, {**selected, "gradientboostingclassifier__max_depth": [1, 3]}),
        "MLP adapter": TunedClassifier(
            AdapterClassifier(train, seed=seed), {"num_selected": widths, "dropout": [0.5, 0.3]}
        ),
    }


def nested_cross_validation(
    classifier: TunedClassifier,
    rows: AdapterRows,
    *,
    num_folds: int = 5,
    num_inner_folds: int = 3,
    shares: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0),
    seed: int = 0,
) -> dict[str, Any]:
    """Evaluate a classifier on rows that chose none of its weights and settings.

    For each outer fold, the other rows choose the setting with the highest mean AUC over their inner folds, and train
    the classifier with this setting. The fold itself is only scored. The learning curve uses the setting that was
    chosen for most folds.

    Source: Varma and Simon, "Bias in error estimation when using cross-validation for model selection", 2006.

    Args:
        classifier: Classifier with the choices of its settings.
        rows: Rows of both classes.
        num_folds: Number of outer folds.
        num_inner_folds: Number of inner folds.
        shares: Shares of a fold's training rows, in (0, 1], that the points of the learning curve use.
        seed: Random seed of the folds.

    Returns:
        ``measures``: mean and standard deviation over the outer folds of each measure (``AUC``, ``AUC deviation`` and
        so on); ``settings``: description of the settings that were chosen; ``curve``: ``rows``, ``AUC`` and
        ``AUC deviation`` of each point of the learning curve.
    """
    features, labels = (column.numpy() for column in rows)
    outer, inner = (StratifiedKFold(n, shuffle=True, random_state=seed) for n in (num_folds, num_inner_folds))
    search = GridSearchCV(classifier.estimator, dict(classifier.grid), scoring="roc_auc", cv=inner)
    folds = cross_validate(search, features, labels, cv=outer, scoring=MEASURES, return_estimator=True)
    chosen = Counter(tuple(fold.best_params_.items()) for fold in folds["estimator"])
    measures: dict[str, float] = {}
    for measure in MEASURES:
        measures |= _mean_and_deviation(measure, np.abs(folds[f"test_{measure}"]))
    best = search.estimator.set_params(**dict(chosen.most_common(1)[0][0]))
    sizes, _, scores = learning_curve(
        best,
        features,
        labels,
        cv=outer,
        train_sizes=list(shares),
        scoring="roc_auc",
        shuffle=True,
        random_state=seed,
    )
    return {
        "measures": measures,
        "settings": "; ".join(f"{count}x {_describe(setting)}" for setting, count in chosen.most_common()),
        "curve": [
            {"rows": int(size), **_mean_and_deviation("AUC", each)} for size, each in zip(sizes, scores, strict=True)
        ],
    }


def _describe(setting: tuple[tuple[str, Any], ...]) -> str:
    """Describe a setting, without the names of the parts of a pipeline."""
    return ", ".join(f"{key.rpartition('__')[2]}={choice}" for key, choice in setting) or "-"


def _mean_and_deviation(name: str, numbers: np.ndarray) -> dict[str, float]:
    return {name: float(numbers.mean()), f"{name} deviation": float(numbers.std())}
