"""Train the complexity adapter on a few labelled rows, and calibrate it."""

import copy
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from sklearn.feature_selection import mutual_info_classif
from torch import Tensor

from graphrerank.checks import check_counts, check_not_negative, check_positive
from graphrerank.metrics import area_under_roc, expected_calibration_error

HELD_OUT = 0.2  # share of the training rows that decides when to stop
MAX_TEMPERATURE = 20.0  # its inverse is the smallest: rows all right, or worse than chance, have no optimum
HALVINGS = 50  # of log T between the bounds


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of features with a label each; derived values are computed once.

    Raises:
        ValueError: If a shape does not fit, a number is not finite, or a class has no row.
    """

    features: Tensor  # `[n, F]` raw, finite
    labels: Tensor  # `[n]`, 0 or 1, both of them
    seed: int = 0  # of splits and of `relevance`

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.labels.shape != self.features.shape[:1]:
            raise ValueError(
                "`features` must have shape [n, F] and `labels` [n], "
                f"got {tuple(self.features.shape)} and {tuple(self.labels.shape)}"
            )
        if not bool(self.features.isfinite().all()):
            row = int((~self.features.isfinite()).any(dim=1).nonzero()[0])
            raise ValueError(f"`features` must be finite, got NaN or infinity in row {row}")
        if (classes := set(self.labels.tolist())) != {0, 1}:
            raise ValueError(
                f"`labels` must hold both classes, 0 and 1, got {sorted(classes)} in {len(self.labels)} rows; "
                "where one path is always right there is nothing to route"
            )

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def take(self, index: Tensor) -> "LabelledRows":
        """Return some of the rows, ``index`` ``[m]`` int64."""
        return LabelledRows(self.features[index], self.labels[index], self.seed)

    @cached_property
    def relevance(self) -> Tensor:
        """Mutual information of each feature with the label, ``[F]`` float64 in nats, not negative.

        scikit-learn's estimate, from nearest neighbours (Ross, 2014).
        """
        shared = mutual_info_classif(self.features.numpy(), self.labels.numpy(), random_state=self.seed)
        return torch.from_numpy(shared)

    def top_features(self, top_k: int) -> Tensor:
        """Return the columns that share most information with the label, ``[min(top_k, F)]`` int64, ascending.

        Source: Dong et al., Use Graph When It Needs (EA-GraphRAG), section 3.2.5. Many features of a small set share
        nothing (0): of those the first come first.
        """
        check_counts(top_k=top_k)
        return self.relevance.argsort(descending=True, stable=True)[:top_k].sort().values

    def z_scores(self, selected: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and deviation of columns, ``[k]`` float32 each; the deviation of a constant column is 1."""
        columns = self.features[:, selected].double()
        mean, std = columns.mean(dim=0), columns.std(dim=0, correction=0)
        std[std < 1e-6 * (1 + mean.abs())] = 1.0
        return mean.float(), std.float()

    @cached_property
    def early_stopping_split(self) -> tuple["LabelledRows", "LabelledRows"]:
        """Rows to train on and rows for early stopping, stratified by class.

        Raises:
            ValueError: If a class has fewer than two rows.
        """
        if (rarer := int(self.labels.long().bincount().min())) < 2:
            raise ValueError(f"early stopping needs two rows of each class, got {rarer} of the rarer one")
        generator = torch.Generator().manual_seed(self.seed)
        held = torch.zeros(len(self), dtype=torch.bool)
        for label in (0, 1):
            rows = (self.labels == label).nonzero().squeeze(1)
            rows = rows[torch.randperm(len(rows), generator=generator)]
            held[rows[: max(1, round(HELD_OUT * len(rows)))]] = True
        return self.take((~held).nonzero().squeeze(1)), self.take(held.nonzero().squeeze(1))


class BuildAdapter(Protocol):
    """Makes an untrained adapter: a module with ``logits(features)`` and ``standardize(selected, mean, std)``."""

    def __call__(self, *, num_features: int, num_selected: int, dropout: float) -> Any:
        """Build it, with weights drawn from torch's global generator."""


@dataclass(frozen=True)
class AdapterSettings:
    """How an adapter is trained. The paper gives none of these numbers but ``num_selected``."""

    num_selected: int = 85  # features to keep, by mutual information; all where there are fewer
    dropout: float = 0.3  # of the model
    smoothing: float = 0.1  # label smoothing in [0, 1): a label `y` becomes `(1 - smoothing) y + smoothing / 2`
    # whether both classes weigh the same in the loss. The paper says nothing of imbalance; unbalanced, s(q) stays a
    # probability among queries like those trained on
    balanced: bool = False
    learning_rate: float = 1e-3  # of AdamW at the start; a cosine takes it to 0 over `max_epochs`
    weight_decay: float = 0.01  # AdamW's decay of matrices
    batch_size: int = 32  # rows in a step; all where there are fewer
    max_epochs: int = 60  # epochs at most
    patience: int = 10  # epochs without a lower validation loss until training stops
    seed: int = 0  # of weights, dropout and the order of rows

    def __post_init__(self) -> None:
        check_counts(num_selected=self.num_selected, batch_size=self.batch_size)
        check_counts(max_epochs=self.max_epochs, patience=self.patience)
        check_positive(learning_rate=self.learning_rate)
        check_not_negative(weight_decay=self.weight_decay)
        if not 0 <= self.smoothing < 1:
            raise ValueError(f"`smoothing` must lie in [0, 1), got {self.smoothing}")


@dataclass(frozen=True)
class FittedAdapter:
    """A trained adapter."""

    model: Any  # in evaluation mode, with the weights of the epoch with the lowest validation loss; not yet calibrated
    history: list[dict[str, float]]  # per epoch `train/loss`, `val/loss` and `val/auc`
    best_epoch: int  # the epoch whose weights these are, from 1


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float, class_weight: Tensor) -> Tensor:
    r"""Cross-entropy of logits ``[n]`` with smoothed labels, the rows weighed by class, in nats.

    .. math:: \ell = \frac{\sum_i w_{y_i} \mathrm{BCE}(\sigma(z_i), (1 - \epsilon) y_i + \epsilon / 2)}{\sum_i w_{y_i}}
    """
    target = (1 - smoothing) * labels.to(logits.dtype) + smoothing / 2
    weight = class_weight[labels.long()]
    return (weight * F.binary_cross_entropy_with_logits(logits, target, reduction="none")).sum() / weight.sum()


def fit_adapter(
    build: BuildAdapter, train: LabelledRows, validation: LabelledRows, settings: AdapterSettings
) -> FittedAdapter:
    """Choose features and z-scores on the training rows, and train until the validation loss falls no more.

    Source: EA-GraphRAG, section 3.3: binary cross-entropy with label smoothing, AdamW, a cosine. *Our choices:* early
    stopping, and all numbers of :class:`AdapterSettings`. The same rows and settings give the same weights; torch's
    global generator is left as it was. A step takes a few hundred microseconds on a CPU.

    Args:
        build: Makes the model.
        train: Rows to train on, which alone decide features and z-scores.
        validation: Rows to stop by.
        settings: How to train.

    Raises:
        ValueError: If training and validation rows have different numbers of features.
    """
    num_features = train.features.shape[1]
    if validation.features.shape[1] != num_features:
        raise ValueError(
            f"`validation` must have the features of `train`, {num_features}, got {validation.features.shape[1]}"
        )
    selected = train.top_features(settings.num_selected)
    counts = train.labels.long().bincount().float()
    class_weight = len(train) / (2 * counts) if settings.balanced else torch.ones(2)
    num_batches = -(-len(train) // settings.batch_size)
    order = torch.Generator().manual_seed(settings.seed)
    history: list[dict[str, float]] = []
    best_epoch, best_state = 0, {}

    def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(logits, labels, smoothing=settings.smoothing, class_weight=class_weight)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build(num_features=num_features, num_selected=len(selected), dropout=settings.dropout)
        model.standardize(selected, *train.z_scores(selected))
        groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p.dim() > 1]}]
        groups.append({"params": [p for p in model.parameters() if p.dim() <= 1], "weight_decay": 0.0})
        optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate, weight_decay=settings.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.max_epochs * num_batches)
        for epoch in range(1, settings.max_epochs + 1):
            model.train()
            total = 0.0
            for rows in torch.randperm(len(train), generator=order).tensor_split(num_batches):
                loss = loss_of(model.logits(train.features[rows]), train.labels[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
                total += len(rows) * loss.item()
            model.eval()
            with torch.no_grad():
                logits = model.logits(validation.features)
            losses = {"train/loss": total / len(train), "val/loss": float(loss_of(logits, validation.labels))}
            history.append({**losses, "val/auc": area_under_roc(logits, validation.labels)})
            if best_epoch == 0 or losses["val/loss"] < history[best_epoch - 1]["val/loss"]:
                best_epoch, best_state = epoch, copy.deepcopy(model.state_dict())
            if epoch - best_epoch >= settings.patience:
                break
    model.load_state_dict(best_state)
    return FittedAdapter(model, history, best_epoch)


@dataclass(frozen=True)
class Calibration:
    """Effect of a calibration on the rows that it was fitted on."""

    temperature: float  # the logit is divided by it
    nll_before: float  # mean negative log-likelihood without it, in nats
    nll_after: float  # with it
    ece_before: float  # expected calibration error without it, ten bins
    ece_after: float  # with it; not always lower, since the likelihood is what is fitted


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    r"""Find the temperature of the highest likelihood, in [1/20, 20], of logits ``[n]`` and labels ``[n]``, 0 or 1.

    .. math:: \min_T \sum_i \mathrm{BCE}(\sigma(z_i / T), y_i)

    Source: Guo et al., "On Calibration of Modern Neural Networks", 2017, section 4.2. The loss is convex in
    :math:`1 / T`, so that halving on its slope finds the optimum.
    """
    if len(logits) == 0 or not bool(logits.isfinite().all()):
        raise ValueError(f"`logits` must be one or more finite numbers, got {logits.tolist()[:10]}")
    z, y = logits.detach().double(), labels.double()
    low, high = -math.log(MAX_TEMPERATURE), math.log(MAX_TEMPERATURE)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        slope_in_inverse = float(((torch.sigmoid(z / math.exp(middle)) - y) * z).sum())
        low, high = (middle, high) if slope_in_inverse > 0 else (low, middle)  # too sure: a higher temperature
    return math.exp((low + high) / 2)


@torch.inference_mode()
def calibrate(model: Any, validation: LabelledRows) -> Calibration:
    """Fit the temperature of an adapter on validation rows and set it in the model.

    Args:
        model: In evaluation mode, with ``logits(features)`` and a buffer ``temperature``.
        validation: Rows that the weights were not trained on.
    """
    logits, labels = model.logits(validation.features).double(), validation.labels.double()
    temperature = fit_temperature(logits, labels)
    model.temperature.fill_(temperature)
    nll = [float(F.binary_cross_entropy_with_logits(logits / t, labels)) for t in (1.0, temperature)]
    ece = [expected_calibration_error(torch.sigmoid(logits / t), labels) for t in (1.0, temperature)]
    return Calibration(temperature, nll[0], nll[1], ece[0], ece[1])
