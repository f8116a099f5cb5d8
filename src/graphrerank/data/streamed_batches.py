"""Batches of candidate graphs from shards on disk: in random order by shard and buffer, resumed within an epoch."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from graphrerank.checks import check_counts
from graphrerank.data.candidate_shards import CandidateShards
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule, EpochBatches, SplitDataModule, process_share
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.graphs.model_inputs import SCORES


class StreamedDataModule(SplitDataModule):
    """Serve training queries from shards, and those of validation from memory.

    Shards are read in random order, as many at once as ``buffer`` queries are; their queries are shuffled together. The
    order depends on ``seed`` and the epoch alone. With a buffer for all shards batches are those of
    :class:`~graphrerank.data.datamodule.CandidateDataModule`.

    Args:
        prepared: The data set with the candidates of validation.
        shards: Those of training.
        buffer: Training queries held in memory, at least those of one shard.
        batch_size: Queries of a batch.
        seed: Of the order.
        inputs: The inputs of a model, which reads no pairs.
        train_split: As of the shards.
        val_split: The split for validation.

    Raises:
        ValueError: If a size is not positive, or the model reads pairs of query and passage.
    """

    def __init__(
        self,
        prepared: PreparedDataset,
        shards: CandidateShards,
        *,
        buffer: int,
        batch_size: int = 32,
        seed: int = 0,
        inputs: ModelInputs = SCORES,
        train_split: str = "train",
        val_split: str = "val",
    ) -> None:
        super().__init__(batch_size, seed=seed, inputs=inputs, train_split=train_split, val_split=val_split)
        check_counts(buffer=buffer)
        if inputs.reads_pairs:
            raise ValueError("`buffer` must be null for a model that reads pairs of query and passage")
        self.prepared = prepared
        self.shards = shards
        self.buffer = buffer
        self._progress = _Progress()

    def train_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return shuffled batches of the shards."""
        sampler = ShardBatches(list(self.shards.sizes), batch_size=self.batch_size, seed=self.seed, buffer=self.buffer)
        batches = _ShardGraphs(self.shards, inputs=self.inputs, hold=sampler.shards_at_once)
        return self.resumed(_ResumableLoader(batches, sampler=sampler, progress=self._progress))

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many of its batches were served, which Lightning keeps in checkpoints."""
        return {"epoch": self._progress.epoch, "served": self._progress.served}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on with the batch that comes next."""
        self._progress.resumed = (state_dict["epoch"], state_dict["served"])

    def val_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return batches of the validation split, in order."""
        module = CandidateDataModule(
            self.prepared, batch_size=self.batch_size, inputs=self.inputs, val_split=self.val_split
        )
        return module.val_dataloader()


class ShardBatches(EpochBatches):
    """Batches of places in shards.

    Args:
        sizes: Items of each shard.
        batch_size: Items of a batch; fewer in the last.
        seed: Of the order, with the epoch.
        buffer: Items held at once; at least one shard is.
    """

    def __init__(self, sizes: list[int], *, batch_size: int, seed: int, buffer: int) -> None:
        super().__init__(sum(sizes), batch_size=batch_size, seed=seed)
        self.sizes = sizes
        self.shards_at_once = len(sizes) if buffer >= sum(sizes) else max(1, buffer // max(sizes))
        self.served = 0  # batches of this epoch that are left out, as they were served before

    def __iter__(self) -> Iterator[list[int]]:
        served, self.served = self.served, 0
        for batch in torch.split(self._order(), self.batch_size)[served:]:
            yield batch.tolist()

    def _order(self) -> Tensor:
        assert self.seed is not None
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
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


class _ResumableLoader(DataLoader[CandidateGraphs]):
    """Notes which batches it has served, and leaves out those that a resumed run has seen."""

    def __init__(self, graphs: "_ShardGraphs", *, sampler: ShardBatches, progress: _Progress) -> None:
        super().__init__(graphs, batch_size=None, sampler=sampler)
        self._progress = progress

    def __iter__(self) -> Any:
        """Serve the batches of an epoch, or the rest of one."""
        sampler, progress = cast("ShardBatches", self.sampler), self._progress
        epoch, served = progress.resumed or (-1, 0)
        progress.epoch, progress.served, progress.resumed = sampler.epoch, 0, None
        if epoch == sampler.epoch and served < len(sampler):
            progress.served = sampler.served = served
        for batch in super().__iter__():
            progress.served += 1
            yield batch


class _ShardGraphs(Dataset[CandidateGraphs]):
    def __init__(self, shards: CandidateShards, *, inputs: ModelInputs, hold: int) -> None:
        self.shards, self.inputs, self.hold = shards, inputs, hold

    def __len__(self) -> int:
        return sum(self.shards.sizes)

    def __getitem__(self, batch: list[int]) -> CandidateGraphs:
        places = torch.tensor(batch, dtype=torch.int64)[process_share()]
        return self.shards.graphs(places, inputs=self.inputs, hold=self.hold)
