"""Train the complexity adapter on a few labelled rows."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphrerank.checks import check_counts, check_not_negative, check_positive
from graphrerank.metrics import area_under_roc
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows


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
    max_epochs: int = 60  # epochs at most, of a trainer that is not given
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


class AdapterModule(L.LightningModule):
    """Train an adapter on batches of features and labels; keep the weights with the lowest validation loss.

    ``model`` has ``logits(features)``; ``class_weight`` is ``[2]``, of class 0 and of class 1 in the loss.
    """

    def __init__(self, model: nn.Module, settings: AdapterSettings, class_weight: Tensor) -> None:
        super().__init__()
        self.model: Any = model
        self.settings = settings
        self.register_buffer("class_weight", class_weight, persistent=False)
        self.history: list[dict[str, float]] = []
        self.best_epoch = 0
        self._best_state: dict[str, Tensor] = {}

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        """Return the loss of a batch."""
        loss = self._loss(self.model.logits(batch[0]), batch[1])
        self.log("train/loss", loss, on_step=False, on_epoch=True, batch_size=len(batch[1]))
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        """Measure the validation rows, which are one batch."""
        logits = self.model.logits(batch[0])
        self.log("val/loss", self._loss(logits, batch[1]), batch_size=len(batch[1]))
        self.log("val/auc", area_under_roc(logits, batch[1]), batch_size=len(batch[1]))

    def on_train_epoch_end(self) -> None:
        """Keep the epoch's numbers and, where it is the best one, its weights; stop when patience is at an end."""
        row = {key: float(metric) for key, metric in self.trainer.callback_metrics.items()}
        self.history.append(row)
        epoch = len(self.history)
        if self.best_epoch == 0 or row["val/loss"] < self.history[self.best_epoch - 1]["val/loss"]:
            self.best_epoch = epoch
            self._best_state = copy.deepcopy(self.model.state_dict())
        if epoch - self.best_epoch >= self.settings.patience:
            self.trainer.should_stop = True

    def on_fit_end(self) -> None:
        """Take the weights of the best epoch."""
        self.model.load_state_dict(self._best_state)

    def configure_optimizers(self) -> dict[str, Any]:
        """Build AdamW and its cosine."""
        matrices = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() <= 1]
        groups: list[dict[str, Any]] = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.settings.learning_rate, weight_decay=self.settings.weight_decay)
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(logits, labels, smoothing=self.settings.smoothing, class_weight=self.class_weight)


class _Batches:
    """Rows in a new order each epoch, cut into batches of nearly one size.

    A ``DataLoader`` would gather single rows, which takes longer than a step.
    """

    def __init__(self, rows: LabelledRows, *, batch_size: int, seed: int) -> None:
        self.rows = rows
        self.num_batches = -(-len(rows) // batch_size)
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for part in torch.randperm(len(self.rows), generator=self.generator).tensor_split(self.num_batches):
            yield self.rows.features[part], self.rows.labels[part]


def fit_adapter(
    build: BuildAdapter,
    train: LabelledRows,
    validation: LabelledRows,
    settings: AdapterSettings,
    *,
    trainer: L.Trainer | None = None,
) -> FittedAdapter:
    """Choose features and z-scores on the training rows, and train until the validation loss falls no more.

    Source: EA-GraphRAG, section 3.3: binary cross-entropy with label smoothing, AdamW, a cosine. *Our choices:* early
    stopping, and all numbers of :class:`AdapterSettings`. The same rows and settings give the same weights; torch's
    global generator is left as it was.

    Args:
        build: Makes the model.
        train: Rows to train on, which alone decide features and z-scores.
        validation: Rows to stop by.
        settings: How to train.
        trainer: Lightning's, for one device; None for a quiet one on the CPU that writes nothing.

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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = build(num_features=num_features, num_selected=len(selected), dropout=settings.dropout)
        model.standardize(selected, *train.z_scores(selected))
        module = AdapterModule(model, settings, class_weight)
        if trainer is None:
            trainer = L.Trainer(
                accelerator="cpu",  # a step is a few hundred microseconds
                max_epochs=settings.max_epochs,
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
            )
        trainer.fit(
            module,
            _Batches(train, batch_size=settings.batch_size, seed=settings.seed),
            _Batches(validation, batch_size=len(validation), seed=settings.seed),
        )
    return FittedAdapter(model.cpu().eval(), module.history, module.best_epoch)
