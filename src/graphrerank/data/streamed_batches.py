"""Batches of candidate graphs from shards on disk: in random order by shard and buffer, resumed within an epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphrerank.checks import check_counts
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidate_shards import CandidateShards
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import (
    CandidateDataModule,
    EpochBatches,
    MixedGraphs,
    MixtureBatches,
    MixtureDataModule,
    SplitDataModule,
    check_parts,
    process_share,
)
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.graphs.model_inputs import SCORES


class StreamedDataModule(SplitDataModule):
    """Serve training queries of one data set or several from shards, and those of validation from memory.

    Shards are read in random order, as many at once as ``buffer`` queries are; their queries are shuffled together. The
    order depends on ``seed`` and the epoch alone. Of several data sets, or with ``augmentation``, batches are mixed as
    by :class:`~graphrerank.data.datamodule.MixtureDataModule`, and each data set has a share of the buffer as large as
    that of its queries; the batches of one come in the order of its shards. With a buffer for all shards batches are
    those of the data module in memory.

    Args:
        parts: Data sets with the candidates of validation, by name.
        shards: Those of training, by name.
        buffer: Training queries held in memory, at least those of one shard of each data set.
        shares: As of ``MixtureDataModule``.
        batch_size: Queries of a batch.
        seed: Of the order.
        inputs: The inputs of a model, which reads no pairs.
        train_split: As of the shards.
        val_split: The split for validation.
        augmentation: Changes training batches; None leaves them as they are.
        validated: Names of the data sets to validate on, if there are several; all when None.

    Raises:
        ValueError: If a size is not positive, the model reads pairs of query and passage, or as of
            ``MixtureDataModule``.
    """

    def __init__(
        self,
        parts: Mapping[str, PreparedDataset],
        shards: Mapping[str, CandidateShards],
        *,
        buffer: int,
        shares: Mapping[str, float] | None = None,
        batch_size: int = 32,
        seed: int = 0,
        inputs: ModelInputs = SCORES,
        train_split: str = "train",
        val_split: str = "val",
        augmentation: CandidateAugmentation | None = None,
        validated: Sequence[str] | None = None,
    ) -> None:
        super().__init__(batch_size, seed=seed, inputs=inputs, train_split=train_split, val_split=val_split)
        check_counts(buffer=buffer)
        check_parts(parts, shares)
        if inputs.reads_pairs:
            raise ValueError("`buffer` must be null for a model that reads pairs of query and passage")
        self.parts = parts
        self.shards = shards
        self.buffer = buffer
        self.shares = shares
        self.augmentation = augmentation
        self.validated = validated
        self.is_mixed = len(parts) > 1 or augmentation is not None
        self._progress = _Progress()

    def train_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return shuffled batches of the shards."""
        sizes = {name: sum(self.shards[name].sizes) for name in self.parts}
        orders = {
            name: ShardOrder(list(self.shards[name].sizes), buffer=self.buffer * size // sum(sizes.values()))
            for name, size in sizes.items()
        }
        sets = [_ShardGraphs(self.shards[name], self.inputs, orders[name].shards_at_once) for name in self.parts]
        sampler: EpochBatches | MixtureBatches
        if not self.is_mixed:
            (order,) = orders.values()
            sampler = EpochBatches(order.num_items, batch_size=self.batch_size, seed=self.seed, order=order)
            return self.resumed(_ResumableLoader(sets[0], sampler=sampler, progress=self._progress))
        sampler = MixtureBatches(
            sizes,
            shares=self.shares,
            batch_size=self.batch_size,
            seed=self.seed,
            orders=orders,
            in_order=not all(order.is_whole for order in orders.values()),
        )
        mixed = MixedGraphs(sets, augmentation=self.augmentation)
        return self.resumed(_ResumableLoader(mixed, sampler=sampler, progress=self._progress))

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many of its batches were served, which Lightning keeps in checkpoints."""
        return {"epoch": self._progress.epoch, "served": self._progress.served}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on with the batch that comes next."""
        self._progress.resumed = (state_dict["epoch"], state_dict["served"])

    def val_dataloader(self) -> DataLoader[CandidateGraphs] | list[DataLoader[CandidateGraphs]]:
        """Return batches of the validation splits, in order: a loader per data set if they are mixed."""
        settings: dict[str, Any] = {
            "batch_size": self.batch_size, "inputs": self.inputs, "val_split": self.val_split,
        }  # fmt: skip
        if self.is_mixed:
            return MixtureDataModule(self.parts, validated=self.validated, **settings).val_dataloader()
        (prepared,) = self.parts.values()
        return CandidateDataModule(prepared, **settings).val_dataloader()


class ShardOrder:
    """Draws an order of the items in shards: some shards at random, their items shuffled together, then the next.

    Args:
        sizes: Items of each shard.
        buffer: Items held at once; at least one shard is.
    """

    def __init__(self, sizes: list[int], *, buffer: int) -> None:
        self.sizes = sizes
        self.num_items = sum(sizes)
        self.is_whole = buffer >= self.num_items  # all items are shuffled together
        self.shards_at_once = len(sizes) if self.is_whole else max(1, buffer // max(sizes))

    def __call__(self, generator: torch.Generator) -> Tensor:
        """Return the places of all items, one shard after the other numbered through, ``[num_items]``."""
        if self.shards_at_once == len(self.sizes):
            return torch.randperm(self.num_items, generator=generator)
        starts = torch.tensor([0, *self.sizes]).cumsum(0).tolist()
        order = []
        for window in torch.split(torch.randperm(len(self.sizes), generator=generator), self.shards_at_once):
            places = torch.cat([torch.arange(starts[shard], starts[shard + 1]) for shard in window.tolist()])
            order.append(places[torch.randperm(len(places), generator=generator)])
        return torch.cat(order)


@dataclass
class _Progress:
    """Where the training loader is, and where it is to go on: epochs, and how many of their batches were served."""

    epoch: int = 0
    served: int = 0
    resumed: tuple[int, int] | None = None


class _Rest(Sampler[Any]):
    """The batches of an epoch behind those that were served before, which count for one pass.

    Args:
        batches: The batches of an epoch.
    """

    def __init__(self, batches: EpochBatches | MixtureBatches) -> None:
        self.batches = batches
        self.served = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (Lightning calls this)."""
        self.batches.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Any]:
        served, self.served = self.served, 0
        return islice(iter(self.batches), served, None)


class _ResumableLoader(DataLoader[CandidateGraphs]):
    """Notes which batches it has served, and leaves out those that a resumed run has seen."""

    def __init__(
        self, graphs: Dataset[CandidateGraphs], *, sampler: EpochBatches | MixtureBatches, progress: _Progress
    ) -> None:
        super().__init__(graphs, batch_size=None, sampler=_Rest(sampler))
        self._progress = progress

    def __iter__(self) -> Any:
        """Serve the batches of an epoch, or the rest of one."""
        sampler, progress = cast("_Rest", self.sampler), self._progress
        here = sampler.batches.epoch
        epoch, served = progress.resumed or (-1, 0)
        progress.epoch, progress.served, progress.resumed = here, 0, None
        if epoch == here and served < len(sampler):
            progress.served = sampler.served = served
        for batch in super().__iter__():
            progress.served += 1
            yield batch


class _ShardGraphs(Dataset[CandidateGraphs]):
    def __init__(self, shards: CandidateShards, inputs: ModelInputs, hold: int) -> None:
        self.shards, self.inputs, self.hold = shards, inputs, hold

    def __len__(self) -> int:
        return sum(self.shards.sizes)

    def __getitem__(self, batch: list[int]) -> CandidateGraphs:
        places = torch.tensor(batch, dtype=torch.int64)[process_share()]
        return self.shards.graphs(places, inputs=self.inputs, hold=self.hold)
