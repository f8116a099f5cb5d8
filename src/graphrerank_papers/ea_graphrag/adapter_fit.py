"""Fit the complexity adapter to a few labelled questions: its weights, temperature and thresholds."""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from graphrerank.checks import UserError, check_counts, check_positive
from graphrerank.metrics import area_under_roc, expected_calibration_error
from graphrerank.pipelines.router import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares

HELD_OUT = 0.2  # share of the training rows that decides when to stop
BATCH_SIZE = 32
SMOOTHING = 0.1  # of labels: `y` becomes `(1 - SMOOTHING) y + SMOOTHING / 2`
WEIGHT_DECAY = 0.01  # of matrices
MAX_TEMPERATURE = 20.0  # its inverse is the smallest: rows all right, or worse than chance, have no optimum
HALVINGS = 50  # of log T between the bounds
TIE_PRICE = 1e-9  # added to the price of time: of equal objectives the faster one

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
