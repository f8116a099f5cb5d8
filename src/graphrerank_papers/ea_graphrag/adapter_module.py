"""Lightning module and data module for training the complexity adapter."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from graphrerank.data.datamodule import Batch, Loader, RepeatedBatches, ResumableDataModule
from graphrerank.metrics import area_under_roc
from graphrerank.training import TrainingModule
from graphrerank.training.optimizers import OptimizerFactory, ParameterGroups
from graphrerank.training.schedules import SchedulerFactory, cosine
from graphrerank.utils.checks import UserError
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter

SMOOTHING = 0.1


class AdapterRows(NamedTuple):
    """Labelled queries.

    Attributes:
        features: Raw syntax features ``[n, F]``, all finite.
        labels: Labels ``[n]``: 1 if only the graph path was right, 0 if only the dense path was.
    """

    features: Tensor
    labels: Tensor


def smoothed_cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = SMOOTHING) -> Tensor:
    r"""Compute the mean binary cross-entropy with smoothed labels, in nats.

    .. math:: -\frac{1}{n} \sum_i \tilde y_i \log \sigma(z_i) + (1 - \tilde y_i) \log (1 - \sigma(z_i)),
        \qquad \tilde y_i = (1 - \epsilon) y_i + \epsilon / 2

    Source: Szegedy et al., "Rethinking the Inception Architecture for Computer Vision", 2016, section 7. EA-GraphRAG
    (Dong et al., "Use Graph When It Needs", 2026), section 3.3, uses label smoothing but does not give its strength.

    Args:
        logits: Logits ``[n]``. Half-precision logits are converted to float32.
        labels: Labels ``[n]``, 0 or 1.
        smoothing: Share :math:`\epsilon` of each label that is spread over both classes, in [0, 1).

    Returns:
        Scalar loss.

    Example:
        >>> smoothed_cross_entropy(torch.tensor([0.0, 0.0]), torch.tensor([0, 1]))
        tensor(0.6931)
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    target = (1 - smoothing) * labels.to(logits.dtype) + smoothing / 2
    return F.binary_cross_entropy_with_logits(logits, target)


class AdapterModule(TrainingModule):
    """Train a complexity adapter on batches of :class:`AdapterRows` with any ``lightning.Trainer``.

    The optimiser, the schedule and the reseeding are those of :class:`~graphrerank.training.TrainingModule`. Every step
    logs ``train/loss_step``. Every epoch logs ``train/loss_epoch``, ``val/loss`` and ``val/auc``. The validation
    measures are computed over all validation rows at once. ``Trainer.test`` logs ``test/loss`` and ``test/auc``, and
    ``Trainer.predict`` returns the probability that the graph path is right for each query.

    Args:
        model: Adapter to train. Its features must already be selected and standardised.
        label_smoothing: Share of each label that is spread over both classes, in [0, 1).
        learning_rate: Peak learning rate, reached at the end of the warm-up. Must be positive.
        weight_decay: Weight decay. Applied to weight matrices only, not to biases, norms or scalars.
        warmup_steps: Number of optimiser steps of the linear warm-up. 0 disables the warm-up. It is
            shortened to at most a tenth of the training.
        optimizer: Callable that receives parameter groups and returns an optimiser, such as ``torch.optim.SGD`` or
            ``functools.partial(torch.optim.SGD, momentum=0.9)``. Keywords ``lr`` and ``weight_decay`` of a partial
            replace ``learning_rate`` and ``weight_decay``.
        scheduler: Callable that receives the optimiser and returns a learning-rate schedule: a function of
            :mod:`graphrerank.training.schedules`, or a class of ``torch.optim.lr_scheduler``.
        parameter_groups: Learning rate, or mapping with ``learning_rate`` and ``weight_decay``, by prefix of the names
            of the model's parameters, such as ``{"lin_in": 1e-4}``. All other parameters use the settings above. If
            None, all parameters do.
        seed: Seed of all random numbers of the training, such as those of dropout.

    Raises:
        ValueError: If ``label_smoothing`` is not in [0, 1), or an argument of the base class is out of range.

    Example:
        >>> AdapterModule(ComplexityAdapter(num_features=3, num_selected=2)).label_smoothing
        0.1
    """

    model: ComplexityAdapter

    def __init__(
        self,
        model: ComplexityAdapter,
        *,
        label_smoothing: float = SMOOTHING,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.01,
        warmup_steps: int = 0,
        optimizer: OptimizerFactory = torch.optim.AdamW,
        scheduler: SchedulerFactory = cosine,
        parameter_groups: ParameterGroups | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            model,
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            warmup_steps=warmup_steps,
            optimizer=optimizer,
            scheduler=scheduler,
            parameter_groups=parameter_groups,
            seed=seed,
        )
        if not 0 <= label_smoothing < 1:
            raise UserError(f"`label_smoothing` must lie in [0, 1), got {label_smoothing}")
        self.label_smoothing = label_smoothing
        self.save_settings(label_smoothing=label_smoothing)
        self._evaluated: list[tuple[Tensor, Tensor]] = []  # logits and labels of each batch

    def forward(self, features: Tensor) -> Tensor:
        """Return the complexity scores of queries.

        Args:
            features: Raw syntax features ``[n, F]``.

        Returns:
            Scores ``[n]`` in [0, 1].
        """
        scores: Tensor = self.model(features)
        return scores

    def training_step(self, rows: AdapterRows, batch_idx: int) -> Tensor:
        """Return the loss of a batch, and log it.

        Args:
            rows: Batch of labelled queries.
            batch_idx: Index of the batch in the epoch.
        """
        loss = self._loss(self.model.logits(rows.features), rows.labels)
        self.log("train/loss", loss, on_step=True, on_epoch=True, prog_bar=True, batch_size=len(rows.labels))
        return loss

    def on_validation_epoch_start(self) -> None:
        """Discard the logits of an earlier validation."""
        self._evaluated = []

    def validation_step(self, rows: AdapterRows, batch_idx: int) -> None:
        """Compute and store the logits of a batch, in the precision of the weights.

        Args:
            rows: Batch of labelled queries.
            batch_idx: Index of the batch in the epoch.
        """
        self._evaluate(rows)

    def on_validation_epoch_end(self) -> None:
        """Log the loss and the AUC over all validation rows."""
        self._log_measures("val")

    def on_test_epoch_start(self) -> None:
        """Discard the logits of an earlier validation or test."""
        self._evaluated = []

    def test_step(self, rows: AdapterRows, batch_idx: int) -> None:
        """Compute and store the logits of a batch, in the precision of the weights.

        Args:
            rows: Batch of labelled queries.
            batch_idx: Index of the batch.
        """
        self._evaluate(rows)

    def on_test_epoch_end(self) -> None:
        """Log the loss and the AUC over all test rows."""
        self._log_measures("test")

    def predict_step(self, rows: AdapterRows, batch_idx: int) -> Tensor:
        """Return the probability of each query of a batch that the graph path is the right one, ``[n]``.

        Args:
            rows: Batch of queries. Their labels are ignored.
            batch_idx: Index of the batch.
        """
        with torch.autocast(rows.features.device.type, enabled=False):
            probabilities: Tensor = self(rows.features)
        return probabilities

    def _evaluate(self, rows: AdapterRows) -> None:
        with torch.autocast(rows.features.device.type, enabled=False):  # bfloat16 logits would be tied more often
            logits = self.model.logits(rows.features)
        self._evaluated.append((logits.cpu(), rows.labels.cpu()))

    def _log_measures(self, stage: str) -> None:
        logits, labels = map(torch.cat, zip(*self._evaluated, strict=True))
        measures = {f"{stage}/loss": self._loss(logits, labels), f"{stage}/auc": area_under_roc(logits, labels)}
        self.log_dict(measures, prog_bar=True)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        return smoothed_cross_entropy(logits, labels, smoothing=self.label_smoothing)


class AdapterDataModule(ResumableDataModule):
    """Provide labelled queries as batches: shuffled in each epoch for training, all in one batch otherwise.

    Args:
        train: Rows to train on.
        validation: Rows for choosing the best epoch. Both classes must occur.
        batch_size: Number of rows in a training batch.
        seed: Random seed of the order. The order also depends on the epoch.
        test: Rows of ``Trainer.test`` and ``Trainer.predict``. Both classes must occur in a test. If None, those
            methods need other data.
    """

    def __init__(
        self,
        train: AdapterRows,
        validation: AdapterRows,
        *,
        batch_size: int = 32,
        seed: int = 0,
        test: AdapterRows | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed)
        self.train, self.validation, self.test = train, validation, test

    def train_dataloader(self) -> Loader:
        """Return the batches of the training rows, in the order of the current epoch."""
        return Loader(_Selected(self.train), batch_size=None, sampler=self.training_batches([len(self.train.labels)]))

    def val_dataloader(self) -> Loader:
        """Return a loader with one batch of all validation rows."""
        return _single_batch(self.validation)

    def test_dataloader(self) -> Loader:
        """Return a loader with one batch of all test rows.

        Raises:
            UserError: If there are no test rows.
        """
        if self.test is None:
            raise UserError("`test` must be the rows to test or predict on, got None")
        return _single_batch(self.test)

    def predict_dataloader(self) -> Loader:
        """Return a loader with one batch of all test rows.

        Raises:
            UserError: If there are no test rows.
        """
        return self.test_dataloader()


def _single_batch(rows: AdapterRows) -> Loader:
    size = len(rows.labels)
    return Loader(_Selected(rows), batch_size=None, sampler=RepeatedBatches([size], batch_size=size, seed=None))


class _Selected(Dataset[AdapterRows]):
    """Labelled queries, indexed by batch."""

    def __init__(self, rows: AdapterRows) -> None:
        self.rows = rows

    def __getitem__(self, batch: Batch) -> AdapterRows:
        return AdapterRows(self.rows.features[batch.items], self.rows.labels[batch.items])
