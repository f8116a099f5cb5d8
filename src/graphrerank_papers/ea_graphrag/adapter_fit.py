"""Fit the complexity adapter to a few labelled questions: its weights, temperature and thresholds; compare it."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_selection import mutual_info_classif
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate, learning_curve
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from graphrerank.checks import UserError, check_counts, check_positive
from graphrerank.evaluation.tables import markdown_table
from graphrerank.metrics import area_under_roc, expected_calibration_error
from graphrerank.pipelines.router import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares

HELD_OUT = 0.2  # share of the training rows that decides when to stop
BATCH_SIZE = 32
SMOOTHING = 0.1  # of labels: `y` becomes `(1 - SMOOTHING) y + SMOOTHING / 2`
WEIGHT_DECAY = 0.01  # of matrices
MAX_TEMPERATURE = 20.0  # its inverse is the smallest: rows all right, or worse than chance, have no optimum
HALVINGS = 50  # of log T between the bounds
TIE_PRICE = 1e-9  # added to the price of time: of equal objectives the faster one
MEASURES = {"AUC": "roc_auc", "accuracy": "accuracy", "log loss": "neg_log_loss"}

BuildAdapter = Callable[..., Any]  # of `num_features`, `num_selected` and `dropout`: a `ComplexityAdapter`
Rows = tuple[Tensor, Tensor]  # `[n, F]` raw, finite features, and `[n]` labels, 0 or 1


def top_features(rows: Rows, top_k: int, seed: int) -> Tensor:
    """Return the columns with the highest mutual information with the label, ``[min(top_k, F)]`` int64, ascending.

    Source: EA-GraphRAG, section 3.2.5, with scikit-learn's estimate from nearest neighbours (Ross, 2014). In a small
    set it is 0 for many features: of these, the first are taken.
    """
    features, labels = rows
    shared = mutual_info_classif(features.numpy(), labels.numpy(), random_state=seed)
    return torch.from_numpy(shared).argsort(descending=True, stable=True)[:top_k].sort().values


def early_stopping_split(rows: Rows, seed: int) -> tuple[Rows, Rows]:
    """Return rows to train on and rows for early stopping, stratified by class, of which each must have two."""
    features, labels = rows
    if (rarer := int(labels.long().bincount(minlength=2).min())) < 2:
        raise UserError(f"early stopping needs two rows of each class, got {rarer} of the rarer one")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for label in (0, 1):
        of_class = (labels == label).nonzero().squeeze(1)
        of_class = of_class[torch.randperm(len(of_class), generator=generator)]
        held[of_class[: max(1, round(HELD_OUT * len(of_class)))]] = True
    return (features[~held], labels[~held]), (features[held], labels[held])


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of the training; the paper gives none of these numbers but ``num_selected``."""

    num_selected: int = 85  # features to keep, by mutual information; all where there are fewer
    dropout: float = 0.3  # of the model
    learning_rate: float = 1e-3  # of AdamW at the start; a cosine takes it to 0 over `max_epochs`
    max_epochs: int = 60  # epochs at most
    patience: int = 10  # epochs without a lower validation loss until training stops
    seed: int = 0  # of weights, dropout and the order of rows

    def __post_init__(self) -> None:
        check_counts(num_selected=self.num_selected, max_epochs=self.max_epochs, patience=self.patience)
        check_positive(learning_rate=self.learning_rate)


def smoothed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits ``[n]`` with smoothed labels ``[n]``, in nats."""
    target = (1 - SMOOTHING) * labels.to(logits.dtype) + SMOOTHING / 2
    return F.binary_cross_entropy_with_logits(logits, target, reduction="none").mean()


def fit_adapter(
    build: BuildAdapter, train: Rows, validation: Rows, settings: AdapterSettings
) -> tuple[Any, list[dict[str, float]]]:
    """Choose features and z-scores on the training rows, and train until the validation loss stops falling.

    Source: EA-GraphRAG, section 3.3: binary cross-entropy with label smoothing, AdamW, a cosine. *Our choices:* early
    stopping, and all numbers. Torch's global generator is left alone. Returns the model in evaluation mode with the
    weights of the best epoch, not calibrated; and ``train/loss``, ``val/loss`` and ``val/auc`` of each epoch.
    """
    features, labels = train
    selected = top_features(train, settings.num_selected, settings.seed)
    columns = features[:, selected].double()
    mean, std = columns.mean(dim=0), columns.std(dim=0, correction=0)
    std[std < 1e-6 * (1 + mean.abs())] = 1.0  # a constant column
    num_batches = -(-len(labels) // BATCH_SIZE)
    order = torch.Generator().manual_seed(settings.seed)
    history: list[dict[str, float]] = []
    best_epoch, best_state = 0, {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build(num_features=features.shape[1], num_selected=len(selected), dropout=settings.dropout)
        model.standardize(selected, mean.float(), std.float())
        groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p.dim() > 1]}]
        groups.append({"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=WEIGHT_DECAY)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.max_epochs * num_batches)
        for epoch in range(1, settings.max_epochs + 1):
            model.train()
            total = 0.0
            for rows in torch.randperm(len(labels), generator=order).tensor_split(num_batches):
                loss = smoothed_cross_entropy(model.logits(features[rows]), labels[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += len(rows) * loss.item()
            model.eval()
            with torch.no_grad():
                logits = model.logits(validation[0])
            held_loss = float(smoothed_cross_entropy(logits, validation[1]))
            if best_epoch == 0 or held_loss < history[best_epoch - 1]["val/loss"]:
                best_epoch, best_state = epoch, copy.deepcopy(model.state_dict())
            auc = area_under_roc(logits, validation[1])
            history.append({"train/loss": total / len(labels), "val/loss": held_loss, "val/auc": auc})
            if epoch - best_epoch >= settings.patience:
                break
    model.load_state_dict(best_state)
    return model, history


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    r"""Find the temperature of the highest likelihood, in [1/20, 20], of logits ``[n]`` and labels ``[n]``, 0 or 1.

    .. math:: \min_T \sum_i \mathrm{BCE}(\sigma(z_i / T), y_i)

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, section 4.2. The loss is convex in
    :math:`1 / T`, so that halving on its slope finds the optimum.
    """
    z, y = logits.detach().double(), labels.double()
    low, high = -math.log(MAX_TEMPERATURE), math.log(MAX_TEMPERATURE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope_in_inverse = float(((torch.sigmoid(z / math.exp(middle)) - y) * z).sum())
        low, high = (middle, high) if slope_in_inverse > 0 else (low, middle)  # too sure: a higher temperature
    return math.exp((low + high) / 2)


@torch.inference_mode()
def calibrate(model: Any, validation: Rows) -> dict[str, float]:
    """Fit the temperature of an adapter on rows that its weights were not trained on, and set it in the model.

    Returns the ``temperature``, and before and after it the mean ``nll`` in nats and the ``ece`` of ten bins.
    """
    logits, labels = model.logits(validation[0]).double(), validation[1].double()
    temperature = fit_temperature(logits, labels)
    model.temperature.fill_(temperature)
    found = {"temperature": temperature}
    for when, scaled in (("before", logits), ("after", logits / temperature)):
        found[f"nll_{when}"] = float(F.binary_cross_entropy_with_logits(scaled, labels))
        found[f"ece_{when}"] = expected_calibration_error(torch.sigmoid(scaled), labels)
    return found


@dataclass(frozen=True)
class ThresholdChoice:
    """Thresholds and their result on the queries that they were chosen on."""

    low: float  # queries with s(q) up to it go to dense retrieval; -1: none does
    high: float  # queries with s(q) from it on go to graph retrieval; 2: none does. Above `low`
    price: float  # accuracy that a second per query must bring
    objective: float  # mean accuracy minus `price` times mean seconds
    accuracy: float  # mean correctness
    seconds: float  # mean per query
    shares: dict[str, float]  # of queries per path
    alone: dict[str, float]  # the objective of each path for all queries


def choose_thresholds(
    scores: Tensor, correct: Tensor, seconds: Tensor, *, price: float, fuse: bool = True
) -> ThresholdChoice:
    r"""Choose the thresholds of the highest mean accuracy minus price times seconds.

    .. math:: J(\tau_L, \tau_H) = \frac{1}{n} \sum_q c_{q, r(q)} - \lambda t_{r(q)}

    Source: EA-GraphRAG, section 3.3, "a composite objective of validation accuracy and expected latency", which the
    paper does not write out. One candidate stands for all thresholds between two neighbouring scores: ``low`` at a
    third of the gap, ``high`` at two thirds. :math:`J` is a sum of a part of ``low`` and a part of ``high``: prefix
    sums and a running maximum find the best of all pairs.

    ``scores`` are ``[n]``, s(q) in [0, 1]; ``correct`` and ``seconds`` are ``[n, 3]``, how right each of
    :data:`ROUTES` was, in [0, 1], and its time. ``price`` :math:`\lambda` is accuracy per second, not negative. Without
    ``fuse``, ``low`` and ``high`` lie between the same two scores.
    """
    if not 0 <= price < math.inf:
        raise UserError(f"`price` must be finite and not negative, got {price}")
    correct, seconds = correct.double(), seconds.double()
    order = scores.double().argsort(stable=True)
    distinct, group = torch.unique_consecutive(scores.double()[order], return_inverse=True)
    gap = distinct.diff()
    lows = torch.cat([distinct.new_tensor([-1.0]), distinct[:-1] + gap / 3, distinct.new_tensor([1.0])])
    highs = torch.cat([distinct.new_tensor([0.0]), distinct[:-1] + 2 * gap / 3, distinct.new_tensor([2.0])])
    worth = correct[order] - (price + TIE_PRICE) * seconds[order]

    def prefix(gain: Tensor) -> Tensor:
        """Sum the gains below each of the ``m + 1`` cuts between ``m`` distinct scores."""
        return gain.new_zeros(len(lows)).index_add_(0, group + 1, gain / len(scores)).cumsum(0)

    low_part = prefix(worth[:, DENSE] - worth[:, FUSION])
    high_part = worth[:, GRAPH].sum() / len(scores) + prefix(worth[:, FUSION] - worth[:, GRAPH])
    if fuse:
        best_below, best_index = low_part.cummax(0)
        high_at = int((best_below + high_part).argmax())
        low_at = int(best_index[high_at])
    else:
        low_at = high_at = int((low_part + high_part).argmax())
    low, high = float(lows[low_at]), float(highs[high_at])
    path = choose_routes(scores, low, high)
    accuracy, time = (float(each.gather(1, path.unsqueeze(1)).mean()) for each in (correct, seconds))
    alone = dict(zip(ROUTES, (correct - price * seconds).mean(dim=0).tolist(), strict=True))
    shares = route_shares(path)
    return ThresholdChoice(low, high, price, accuracy - price * time, accuracy, time, shares, alone)


class TopFeatures(TransformerMixin, BaseEstimator):
    """Keeps the columns of :func:`top_features`."""

    def __init__(self, num_selected: int = 85, seed: int = 0) -> None:
        self.num_selected, self.seed = num_selected, seed

    def fit(self, features: np.ndarray, labels: np.ndarray) -> "TopFeatures":
        """Choose the columns of ``[n, F]`` by ``[n]`` labels."""
        rows = torch.from_numpy(features), torch.from_numpy(labels)
        self.columns_ = top_features(rows, self.num_selected, self.seed).numpy()
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
        rows = torch.from_numpy(features), torch.from_numpy(labels)
        train, held = early_stopping_split(rows, self.seed)
        settings = AdapterSettings(num_selected=self.num_selected, dropout=self.dropout, seed=self.seed)
        self.model_, _ = fit_adapter(self.build, train, held, settings)
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
    """Return the classifiers to compare, each with its grid; of ``top_k`` features, a fifth is tried, too."""
    widths = [max(1, top_k // 5), top_k]
    logistic = make_pipeline(TopFeatures(seed=seed), StandardScaler(), LogisticRegression(max_iter=2000))
    trees = GradientBoostingClassifier(n_estimators=100, subsample=0.8, random_state=seed)
    boosting = make_pipeline(TopFeatures(seed=seed), trees)
    selected = {"topfeatures__num_selected": widths}
    return {
        "majority class": (DummyClassifier(strategy="prior"), {}),
        "logistic regression": (logistic, {**selected, "logisticregression__C": [0.01, 0.1, 1.0]}),
        "gradient boosting": (boosting, {**selected, "gradientboostingclassifier__max_depth": [1, 3]}),
        "MLP adapter": (AdapterClassifier(build, seed=seed), {"num_selected": widths, "dropout": [0.5, 0.3]}),
    }


def compare_classifiers(
    rows: Rows,
    compared: dict[str, tuple[Any, dict[str, Any]]],
    *,
    num_folds: int = 5,
    num_inner_folds: int = 3,
    shares: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0),
    seed: int = 0,
) -> str:
    """Compare classifiers (each an estimator and its grid, by name) by nested cross-validation: two tables in Markdown.

    For each outer fold the other rows choose the setting, by the mean AUC of their inner folds, and then train; the
    fold is only scored. The learning curve trains on ``shares`` of the rows with the setting that most folds chose.

    Source: Varma and Simon, "Bias in error estimation when using cross-validation for model selection", 2006.
    """
    features, labels = (column.numpy() for column in rows)
    outer, inner = (StratifiedKFold(n, shuffle=True, random_state=seed) for n in (num_folds, num_inner_folds))
    measured, curves = [], []
    for name, (estimator, grid) in compared.items():
        search = GridSearchCV(estimator, grid, scoring="roc_auc", cv=inner)
        folds = cross_validate(search, features, labels, cv=outer, scoring=MEASURES, return_estimator=True)
        chosen = Counter(tuple(fold.best_params_.items()) for fold in folds["estimator"])
        settings = (f"{count}x {_shown(setting)}" for setting, count in chosen.most_common())
        measured.append([name, *(_text(np.abs(folds[f"test_{measure}"])) for measure in MEASURES), "; ".join(settings)])
        best = search.estimator.set_params(**dict(chosen.most_common(1)[0][0]))
        curve = {"train_sizes": list(shares), "scoring": "roc_auc", "shuffle": True, "random_state": seed}
        sizes, _, scores = learning_curve(best, features, labels, cv=outer, **curve)
        curves.append([name, *map(_text, scores)])
    by_classifier = markdown_table(["classifier", *MEASURES, "settings chosen"], measured)
    return f"{by_classifier}\n\n{markdown_table(['AUC after training on rows', *map(str, sizes)], curves)}"


def _shown(setting: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{key.rpartition('__')[2]}={value}" for key, value in setting) or "-"


def _text(numbers: np.ndarray) -> str:
    """Show the mean over folds and the deviation between them."""
    return f"{numbers.mean():.3f} ± {numbers.std():.3f}"
