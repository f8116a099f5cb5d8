"""The adapter and its baselines on few rows: majority class, logistic regression, gradient boosting."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from graphrerank_papers.ea_graphrag.adapter_calibration import calibrate
from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, BuildAdapter, fit_adapter
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows

Score = Callable[[Tensor], Tensor]  # [n, F] to probabilities of class 1, [n]


@dataclass(frozen=True)
class Classifier:
    """A way to fit, and the settings to choose from.

    Raises:
        ValueError: If ``grid`` is empty.
    """

    # maps rows, which are all that it may look at, and a setting to what scores and the columns that it reads
    fit: Callable[..., tuple[Score, Tensor]]
    # one or more settings, keyword arguments of `fit`; of equally good ones the first is taken
    grid: Sequence[Mapping[str, Any]]

    def __post_init__(self) -> None:
        if not self.grid:
            raise ValueError("`grid` must hold one or more settings ({} for none to choose), got an empty one")


def default_classifiers(build: BuildAdapter, *, top_k: int = 85) -> dict[str, Classifier]:
    """Return the comparison's four classifiers; their grids run from the most to the least restrained."""
    few = max(1, top_k // 5)  # top_k: the paper's number of features
    return {
        "majority class": Classifier(fit_majority, [{}]),
        "logistic regression": Classifier(
            fit_logistic_regression,
            [{"num_selected": k, "inverse_penalty": c} for k in (few, top_k) for c in (0.01, 0.1, 1.0)],
        ),
        "gradient boosting": Classifier(
            fit_gradient_boosting, [{"num_selected": k, "max_depth": d} for k in (few, top_k) for d in (1, 3)]
        ),
        "MLP adapter": Classifier(
            partial(fit_mlp, build=build),
            [{"num_selected": k, "dropout": d} for k in (few, top_k) for d in (0.5, 0.3)],
        ),
    }


def fit_majority(rows: LabelledRows) -> tuple[Score, Tensor]:
    """Give every row the share of class 1 among the training rows; no column is read."""
    share = float(rows.labels.double().mean())
    return lambda features: torch.full((len(features),), share), torch.empty(0, dtype=torch.int64)


def fit_logistic_regression(
    rows: LabelledRows, *, num_selected: int = 85, inverse_penalty: float = 0.1
) -> tuple[Score, Tensor]:
    """Fit logistic regression on z-scores of the selected features; ``inverse_penalty`` is scikit-learn's ``C``."""
    selected = rows.top_features(num_selected)
    mean, std = rows.z_scores(selected)
    model = LogisticRegression(C=inverse_penalty, max_iter=2000)
    model.fit(((rows.features[:, selected] - mean) / std).numpy(), rows.labels.numpy())

    def score(features: Tensor) -> Tensor:
        return torch.from_numpy(model.predict_proba(((features[:, selected] - mean) / std).numpy())[:, 1])

    return score, selected


def fit_gradient_boosting(
    rows: LabelledRows, *, num_selected: int = 85, max_depth: int = 1, num_trees: int = 100
) -> tuple[Score, Tensor]:
    """Fit boosted trees of a depth, each on four fifths of the rows, on the selected features as they are."""
    selected = rows.top_features(num_selected)
    model = GradientBoostingClassifier(
        n_estimators=num_trees, max_depth=max_depth, subsample=0.8, random_state=rows.seed
    )
    model.fit(rows.features[:, selected].numpy(), rows.labels.numpy())

    def score(features: Tensor) -> Tensor:
        return torch.from_numpy(model.predict_proba(features[:, selected].numpy())[:, 1])

    return score, selected


def fit_mlp(rows: LabelledRows, *, build: BuildAdapter, **settings: Any) -> tuple[Score, Tensor]:
    """Train and calibrate the adapter, a fifth of the rows kept back for both; ``settings`` of ``AdapterSettings``."""
    train, held = rows.early_stopping_split
    model = fit_adapter(build, train, held, AdapterSettings(**{"seed": rows.seed, **settings})).model
    calibrate(model, held)

    @torch.inference_mode()
    def score(features: Tensor) -> Tensor:
        return model(features)

    return score, model.selected
