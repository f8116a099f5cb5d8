"""Labelled rows of features for a small binary classifier: checked, split by class, with features chosen from them."""

from dataclasses import dataclass
from functools import cached_property

import torch
from sklearn.feature_selection import mutual_info_classif
from sklearn.model_selection import StratifiedKFold
from torch import Tensor

from graphrerank.checks import check_counts

HELD_OUT = 0.2  # of the training rows: those that tell when to stop


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

    def folds(self, num_folds: int) -> list[tuple[Tensor, Tensor]]:
        """Split into folds with the classes in proportion: pairs of training and test rows, ``[m]`` int64.

        Raises:
            ValueError: If there are fewer than two folds, or fewer rows of a class than folds.
        """
        rarer = int(self.labels.long().bincount().min())
        if not 2 <= num_folds <= rarer:
            raise ValueError(f"`num_folds` must lie in 2 to the rows of the rarer class, {rarer}, got {num_folds}")
        split = StratifiedKFold(num_folds, shuffle=True, random_state=self.seed).split(self.labels, self.labels)
        return [(torch.from_numpy(train), torch.from_numpy(test)) for train, test in split]

    def first(self, num_rows: int) -> "LabelledRows":
        """Return the first rows of a random order whose every prefix is stratified by class.

        All rows come in the order that they have here.

        Raises:
            ValueError: If there are not so many rows, or so few that a class has none.
        """
        if not 2 <= num_rows <= len(self):
            raise ValueError(f"`num_rows` must lie in 2 to {len(self)}, got {num_rows}")
        return self.take(self._spread_order[:num_rows].sort().values)

    @cached_property
    def early_stopping_split(self) -> tuple["LabelledRows", "LabelledRows"]:
        """Split into rows to train on and rows for early stopping, stratified by class.

        Raises:
            ValueError: If a class has fewer than two rows.
        """
        if (rarer := int(self.labels.long().bincount().min())) < 2:
            raise ValueError(f"rows to stop by need two rows of each class, got {rarer} of the rarer one")
        order = self._spread_order
        held = order.new_zeros(len(self), dtype=torch.bool)
        for label in (0, 1):
            of_label = order[self.labels[order] == label]
            held[of_label[: max(1, round(HELD_OUT * len(of_label)))]] = True
        return self.take((~held).nonzero().squeeze(1)), self.take(held.nonzero().squeeze(1))

    @cached_property
    def _spread_order(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        position = torch.zeros(len(self), dtype=torch.float64)  # in [0, 1]
        for label in (0, 1):
            rows = (self.labels == label).nonzero().squeeze(1)
            rows = rows[torch.randperm(len(rows), generator=generator)]
            position[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
        return position.argsort(stable=True)
