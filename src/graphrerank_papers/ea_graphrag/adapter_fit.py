"""Parts of the adapter's training: features, splits, folds; and what follows it: temperature and thresholds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from graphrerank.metrics import expected_calibration_error
from graphrerank.pipelines.router import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.ea_graphrag.adapter_module import AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

HELD_OUT = 0.2  # share of the training rows that decides when to stop
MAX_TEMPERATURE = 20.0  # its inverse is the smallest: rows all right, or worse than chance, have no optimum
HALVINGS = 50  # of log T between the bounds
TIE_PRICE = 1e-9  # added to the price of time: of equal objectives the faster one
MOVED = {  # settings of an older version: where they are now
    "max_epochs": "trainer.max_epochs",
    "patience": "callbacks.early_stopping.patience",
    "learning_rate": "module.learning_rate",
}

BuildAdapter = Callable[..., ComplexityAdapter]  # takes `num_features`, `num_selected` and `dropout`


@dataclass(frozen=True)
class AdapterSettings:
    """Settings of the adapter; the paper gives none of these numbers but ``num_selected``.

    Attributes:
        num_selected: Number of features to select by mutual information; all where there are fewer.
        dropout: Dropout probability of the model's hidden layers, in [0, 1).
        seed: Seed of the selection, the weights and the order of rows.
        max_epochs: Must be None: now ``trainer.max_epochs``.
        patience: Must be None: now ``callbacks.early_stopping.patience``.
        learning_rate: Must be None: now ``module.learning_rate``.
    """

    num_selected: int = 85
    dropout: float = 0.3
    seed: int = 0
    max_epochs: int | None = None
    patience: int | None = None
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_counts(num_selected=self.num_selected)
        for name, place in MOVED.items():
            if (number := getattr(self, name)) is not None:
                raise UserError(f"`job.settings.{name}` has moved to `{place}`: set {place}={number}")


def top_features(rows: AdapterRows, top_k: int, seed: int) -> Tensor:
    """Return the columns with the highest mutual information with the label.

    Source: EA-GraphRAG, section 3.2.5, with scikit-learn's estimate from nearest neighbours (Ross, 2014).

    Args:
        rows: Rows to estimate it on.
        top_k: Number of columns. In a small set the estimate is 0 for many; of these, the first are taken.
        seed: Seed of the noise that the estimate adds.

    Returns:
        Columns ``[min(top_k, F)]`` int64, ascending.
    """
    features, labels = rows
    shared = mutual_info_classif(features.numpy(), labels.numpy(), random_state=seed)
    return torch.from_numpy(shared).argsort(descending=True, stable=True)[:top_k].sort().values


def build_adapter(build: BuildAdapter, train: AdapterRows, settings: AdapterSettings) -> ComplexityAdapter:
    """Build an adapter to train, whose features and z-scores come from the training rows alone.

    Torch's global random numbers are left alone.

    Args:
        build: Builds the model from ``num_features``, ``num_selected`` and ``dropout``.
        train: Rows to train on.
        settings: Settings of the adapter.

    Returns:
        The model with new weights, which depend on ``settings.seed``.
    """
    features, _ = train
    selected = top_features(train, settings.num_selected, settings.seed)
    columns = features[:, selected].double()
    mean, std = columns.mean(dim=0), columns.std(dim=0, correction=0)
    std[std < 1e-6 * (1 + mean.abs())] = 1.0  # a constant column
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build(num_features=features.shape[1], num_selected=len(selected), dropout=settings.dropout)
    model.standardize(selected, mean.float(), std.float())
    return model


def early_stopping_split(rows: AdapterRows, seed: int) -> tuple[AdapterRows, AdapterRows]:
    """Split rows into those to train on and those for early stopping, stratified by class.

    Args:
        rows: Rows of both classes.
        seed: Seed of the split.

    Returns:
        Four fifths of the rows to train on, and the others.

    Raises:
        ValueError: If a class has fewer than two rows.
    """
    _, labels = rows
    if (rarer := rarer_class(labels)) < 2:
        raise UserError(f"early stopping needs two rows of each class, got {rarer} of the rarer one")
    generator = torch.Generator().manual_seed(seed)
    held = torch.zeros(len(labels), dtype=torch.bool)
    for of_class in _shuffled_classes(labels, generator):
        held[of_class[: max(1, round(HELD_OUT * len(of_class)))]] = True
    return _rows_where(rows, ~held), _rows_where(rows, held)


def stratified_folds(rows: AdapterRows, num_folds: int, seed: int) -> list[tuple[AdapterRows, AdapterRows]]:
    """Split rows into folds for a cross-validation, stratified by class.

    Args:
        rows: Rows of both classes.
        num_folds: Number of folds, at least 2.
        seed: Seed of the split.

    Returns:
        For each fold the rows of all other folds and its own.

    Raises:
        ValueError: If a class has too few rows for a row in each fold, and two in all others together.
    """
    _, labels = rows
    rarer = rarer_class(labels)
    if num_folds < 2 or rarer < num_folds or rarer - -(-rarer // num_folds) < 2:
        raise UserError(
            f"`job.folds` must be 0, or at least 2 and at most the number of rows of the rarer class ({rarer}, at "
            f"least 3), got {num_folds}"
        )
    generator = torch.Generator().manual_seed(seed)
    fold = torch.zeros(len(labels), dtype=torch.int64)
    for of_class in _shuffled_classes(labels, generator):
        fold[of_class] = torch.arange(len(of_class)) % num_folds
    return [(_rows_where(rows, fold != number), _rows_where(rows, fold == number)) for number in range(num_folds)]


def rarer_class(labels: Tensor) -> int:
    """Return the number of rows of the rarer class."""
    return int(labels.long().bincount(minlength=2).min())


def _shuffled_classes(labels: Tensor, generator: torch.Generator) -> list[Tensor]:
    """Return the rows of each class, shuffled."""
    classes = [(labels == label).nonzero().squeeze(1) for label in (0, 1)]
    return [rows[torch.randperm(len(rows), generator=generator)] for rows in classes]


def _rows_where(rows: AdapterRows, mask: Tensor) -> AdapterRows:
    return AdapterRows(rows.features[mask], rows.labels[mask])


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
def calibrate_temperature(model: Any, validation: AdapterRows) -> dict[str, float]:
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
