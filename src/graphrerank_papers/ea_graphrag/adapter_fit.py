"""Steps before and after the training of the adapter: feature selection, splits, folds, calibration and thresholds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from graphrerank.metrics import expected_calibration_error
from graphrerank.pipelines.router import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.ea_graphrag.adapter_module import AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

#: Share of the training rows that is held out for early stopping.
HELD_OUT = 0.2
#: Largest temperature; the smallest is its inverse. The bounds are needed because the likelihood has no maximum if the
#: adapter classifies every row correctly, or is worse than chance.
MAX_TEMPERATURE = 20.0
#: Number of bisection steps on the logarithm of the temperature.
HALVINGS = 50
#: Amount added to the price of a second, so that the faster of two equally good choices wins.
TIE_PRICE = 1e-9
#: Number of sets of rows whose mutual information is kept. It must exceed the number of folds of a grid search.
CACHED_ROWS = 16
#: Settings of earlier versions, and the settings that replace them.
MOVED_SETTINGS = {
    "max_epochs": "trainer.max_epochs",
    "patience": "callbacks.early_stopping.patience",
    "learning_rate": "module.learning_rate",
}

#: Function that builds an adapter from `num_features`, `num_selected` and `dropout`.
BuildAdapter = Callable[..., ComplexityAdapter]


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of the adapter. Of these numbers, the paper gives only ``num_selected``.

    Attributes:
        num_selected: Number of features to select by mutual information. If there are fewer features, all are used.
        dropout: Dropout probability of the model's hidden layers, in [0, 1).
        seed: Random seed for the feature selection, the initial weights and the order of the rows.
        max_epochs: Must be None. Replaced by ``trainer.max_epochs``.
        patience: Must be None. Replaced by ``callbacks.early_stopping.patience``.
        learning_rate: Must be None. Replaced by ``module.learning_rate``.
    """

    num_selected: int = 85
    dropout: float = 0.3
    seed: int = 0
    max_epochs: int | None = None
    patience: int | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_counts(num_selected=self.num_selected)
        for name, replacement in MOVED_SETTINGS.items():
            if (number := getattr(self, name)) is not None:
                raise UserError(f"`job.settings.{name}` has moved to `{replacement}`: set {replacement}={number}")


def top_features(rows: AdapterRows, top_k: int, seed: int) -> Tensor:
    """Return the columns with the highest mutual information with the label.

    Source: EA-GraphRAG, section 3.2.5. Mutual information is estimated by scikit-learn from nearest neighbours (Ross,
    2014).

    Args:
        rows: Rows to estimate the mutual information on.
        top_k: Number of columns to select. On few rows the estimate is 0 for many columns; ties go to the first
            columns.
        seed: Random seed of the noise that the estimator adds.

    Returns:
        Column indices ``[min(top_k, F)]`` int64, ascending.
    """
    features, labels = (tensor.contiguous().numpy() for tensor in rows)
    information = _mutual_information(
        features.tobytes(), labels.tobytes(), features.shape, features.dtype.str, labels.dtype.str, seed
    )
    return torch.tensor(information).argsort(descending=True, stable=True)[:top_k].sort().values


@lru_cache(maxsize=CACHED_ROWS)
def _mutual_information(
    features: bytes, labels: bytes, shape: tuple[int, ...], feature_dtype: str, label_dtype: str, seed: int
) -> NDArray[np.float64]:
    """Return the mutual information of each column with the label. A grid search asks for each fold many times."""
    x, y = np.frombuffer(features, dtype=feature_dtype).reshape(shape), np.frombuffer(labels, dtype=label_dtype)
    information: NDArray[np.float64] = mutual_info_classif(x, y, random_state=seed)
    information.flags.writeable = False
    return information


def build_adapter(build: BuildAdapter, train: AdapterRows, settings: AdapterSettings) -> ComplexityAdapter:
    """Build an untrained adapter. Its features and z-scores are computed from the training rows only.

    The global random state of torch does not change.

    Args:
        build: Function that builds the model from ``num_features``, ``num_selected`` and ``dropout``.
        train: Rows to train on.
        settings: Settings of the adapter.

    Returns:
        Model with random weights, which depend on ``settings.seed``.
    """
    features, _ = train
    selected = top_features(train, settings.num_selected, settings.seed)
    columns = features[:, selected].double()
    mean, std = columns.mean(dim=0), columns.std(dim=0, correction=0)
    std[std < 1e-6 * (1 + mean.abs())] = 1.0  # avoid dividing constant columns by zero
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build(num_features=features.shape[1], num_selected=len(selected), dropout=settings.dropout)
    model.standardize(selected, mean.float(), std.float())
    return model


def early_stopping_split(rows: AdapterRows, seed: int) -> tuple[AdapterRows, AdapterRows]:
    """Split rows into a training part and a part for early stopping, stratified by class.

    Args:
        rows: Rows of both classes.
        seed: Random seed of the split.

    Returns:
        Training rows (four fifths), and the held-out rows.

    Raises:
        ValueError: If a class has fewer than two rows.
    """
    _, labels = rows
    if (rarer := rarer_class(labels)) < 2:
        raise UserError(f"early stopping needs at least two rows of each class, got {rarer} of the rarer class")
    generator = torch.Generator().manual_seed(seed)
    is_held_out = torch.zeros(len(labels), dtype=torch.bool)
    for class_rows in _shuffled_classes(labels, generator):
        is_held_out[class_rows[: max(1, round(HELD_OUT * len(class_rows)))]] = True
    return _rows_where(rows, ~is_held_out), _rows_where(rows, is_held_out)


def stratified_folds(rows: AdapterRows, num_folds: int, seed: int) -> list[tuple[AdapterRows, AdapterRows]]:
    """Split rows into folds for cross-validation, stratified by class.

    Args:
        rows: Rows of both classes.
        num_folds: Number of folds, at least 2.
        seed: Random seed of the split.

    Returns:
        One pair per fold: the rows of all other folds, and the rows of this fold.

    Raises:
        ValueError: If ``num_folds`` is below 2, or a class is too small. Every fold needs one row of each class, and
            the other folds together need two.
    """
    _, labels = rows
    rarer = rarer_class(labels)
    if num_folds < 2 or rarer < num_folds or rarer - -(-rarer // num_folds) < 2:
        raise UserError(
            f"`job.folds` must be 0, or at least 2 and at most the number of rows of the rarer class ({rarer}; at "
            f"least 3 are required), got {num_folds}"
        )
    generator = torch.Generator().manual_seed(seed)
    fold = torch.zeros(len(labels), dtype=torch.int64)
    for class_rows in _shuffled_classes(labels, generator):
        fold[class_rows] = torch.arange(len(class_rows)) % num_folds
    return [(_rows_where(rows, fold != number), _rows_where(rows, fold == number)) for number in range(num_folds)]


def rarer_class(labels: Tensor) -> int:
    """Return the number of rows of the rarer class.

    Args:
        labels: Labels ``[n]``, 0 or 1.
    """
    return int(labels.long().bincount(minlength=2).min())


def _shuffled_classes(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Return the row indices of each class in random order."""
    classes = [(labels == label).nonzero().squeeze(1) for label in (0, 1)]
    return [rows[torch.randperm(len(rows), generator=generator)] for rows in classes]


def _rows_where(rows: AdapterRows, mask: Tensor) -> AdapterRows:
    return AdapterRows(rows.features[mask], rows.labels[mask])


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    r"""Fit the temperature that maximises the likelihood of the labels.

    .. math:: \min_T \sum_i \mathrm{BCE}(\sigma(z_i / T), y_i)

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, section 4.2. The loss is convex in
    :math:`1 / T`, so bisection on the sign of its slope finds the optimum.

    Args:
        logits: Logits ``[n]`` before temperature.
        labels: Labels ``[n]``, 0 or 1.

    Returns:
        Temperature in [1/20, 20].

    Example:
        >>> logits, labels = torch.tensor([2.0, 2.0, 2.0, -2.0]), torch.tensor([1, 1, 0, 0])
        >>> round(fit_temperature(logits, labels), 3)  # 2 / log 3: three of four predictions are right
        1.82
    """
    z, y = logits.detach().double(), labels.double()
    low, high = -math.log(MAX_TEMPERATURE), math.log(MAX_TEMPERATURE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope_in_inverse = float(((torch.sigmoid(z / math.exp(middle)) - y) * z).sum())
        low, high = (middle, high) if slope_in_inverse > 0 else (low, middle)  # overconfident: raise the temperature
    return math.exp((low + high) / 2)


@torch.inference_mode()
def calibrate_temperature(model: Any, validation: AdapterRows) -> dict[str, float]:
    """Fit the temperature of an adapter on held-out rows, and store it in the model.

    Args:
        model: Trained :class:`ComplexityAdapter`. Its ``temperature`` is overwritten.
        validation: Rows that the weights were not trained on.

    Returns:
        The ``temperature``; the mean negative log-likelihood in nats before and after scaling (``nll_before`` and
        ``nll_after``); and the expected calibration error over ten bins (``ece_before`` and ``ece_after``).
    """
    logits, labels = model.logits(validation[0]).double(), validation[1].double()
    temperature = fit_temperature(logits, labels)
    model.temperature.fill_(temperature)
    measures = {"temperature": temperature}
    for when, scaled in (("before", logits), ("after", logits / temperature)):
        measures[f"nll_{when}"] = float(F.binary_cross_entropy_with_logits(scaled, labels))
        measures[f"ece_{when}"] = expected_calibration_error(torch.sigmoid(scaled), labels)
    return measures


@dataclass(frozen=True)
class ThresholdChoice:
    """Routing thresholds, and the result of routing the queries that they were chosen on.

    Attributes:
        low: Queries with a score s(q) of at most ``low`` go to dense retrieval. -1 if no query does.
        high: Queries with a score s(q) of at least ``high`` go to graph retrieval. 2 if no query does. Greater than
            ``low``.
        price: Gain in accuracy that is worth one second per query.
        objective: Mean accuracy minus ``price`` times the mean seconds.
        accuracy: Mean correctness of the routed queries.
        seconds: Mean seconds per query.
        shares: Share of the queries that take each path.
        alone: Objective if all queries took the same path, by path.
    """

    low: float
    high: float
    price: float
    objective: float
    accuracy: float
    seconds: float
    shares: dict[str, float]
    alone: dict[str, float]


def choose_thresholds(
    scores: Tensor, correct: Tensor, seconds: Tensor, *, price: float, fuse: bool = True
) -> ThresholdChoice:
    r"""Choose the thresholds that maximise mean accuracy minus the price of the time spent.

    .. math:: J(\tau_L, \tau_H) = \frac{1}{n} \sum_q c_{q, r(q)} - \lambda t_{q, r(q)}

    Source: EA-GraphRAG, section 3.3, "a composite objective of validation accuracy and expected latency". The paper
    does not give the formula. All thresholds between two adjacent scores route alike, so only one of them is a
    candidate: a third of the gap for ``low``, two thirds for ``high``. :math:`J` is the sum of a term that depends on
    ``low`` and a term that depends on ``high``, so prefix sums and a running maximum find the best of all pairs.

    Args:
        scores: Complexity scores s(q) ``[n]``, in [0, 1].
        correct: Correctness ``[n, 3]`` of the answer of each of :data:`ROUTES`, in [0, 1].
        seconds: Seconds ``[n, 3]`` that each of :data:`ROUTES` takes.
        price: Price :math:`\lambda`: the accuracy that is worth one second. Must be finite and non-negative.
        fuse: Whether scores between the thresholds lead to fusion. If False, ``low`` and ``high`` lie between the same
            two scores, so no query is fused.

    Returns:
        Best thresholds with their result. Of equally good thresholds, the faster ones are chosen.

    Raises:
        ValueError: If ``price`` is negative or infinite.

    Example:
        >>> scores = torch.tensor([0.1, 0.9])
        >>> correct = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])  # dense, graph, fusion
        >>> choice = choose_thresholds(scores, correct, torch.tensor([[1.0, 2.0, 3.0]] * 2), price=0.1)
        >>> choice.shares, choice.accuracy, choice.seconds
        ({'dense': 0.5, 'graph': 0.5, 'fusion': 0.0}, 1.0, 1.5)
    """
    if not 0 <= price < math.inf:
        raise UserError(f"`price` must be finite and non-negative, got {price}")
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

    low_term = prefix(worth[:, DENSE] - worth[:, FUSION])
    high_term = worth[:, GRAPH].sum() / len(scores) + prefix(worth[:, FUSION] - worth[:, GRAPH])
    if fuse:
        best_below, best_index = low_term.cummax(0)
        high_index = int((best_below + high_term).argmax())
        low_index = int(best_index[high_index])
    else:
        low_index = high_index = int((low_term + high_term).argmax())
    low, high = float(lows[low_index]), float(highs[high_index])
    path = choose_routes(scores, low, high)
    accuracy, time = (float(each.gather(1, path.unsqueeze(1)).mean()) for each in (correct, seconds))
    alone = dict(zip(ROUTES, (correct - price * seconds).mean(dim=0).tolist(), strict=True))
    shares = route_shares(path)
    return ThresholdChoice(low, high, price, accuracy - price * time, accuracy, time, shares, alone)
