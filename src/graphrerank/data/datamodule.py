"""Batches of candidate graphs for training and validation."""

from collections.abc import Iterator
from typing import cast

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphrerank.data.candidates import PreparedDataset
from graphrerank.graphs import CandidateGraphs


class CandidateDataModule(L.LightningDataModule):
    """Serve one data set's splits as batches of candidate graphs.

    Each epoch's order depends on ``seed`` and the epoch alone, so that a resumed run sees what an unbroken one sees.
    Training queries without a relevant candidate teach nothing and are left out; validation keeps all.

    Args:
        prepared: The data set with its candidates.
        batch_size: Queries per batch.
        seed: Seed of the shuffling.
        vectors: Whether batches carry query and node vectors.
        train_split: Split to train on.
        val_split: Split to validate on.
    """

    def __init__(
        self,
        prepared: PreparedDataset,
        *,
        batch_size: int = 32,
        seed: int = 0,
        vectors: bool = True,
        train_split: str = "train",
        val_split: str = "val",
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"`batch_size` must be a positive integer, got {batch_size}")
        self.prepared = prepared
        self.batch_size = batch_size
        self.seed = seed
        self.vectors = vectors
        self.train_split = train_split
        self.val_split = val_split

    def train_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return shuffled batches of the training split."""
        qrels = self.prepared.dataset.split(self.train_split)
        queries = qrels.queries
        nodes = self.prepared.ranking.nodes[queries]
        found = qrels.relevance(queries, nodes, num_nodes=self.prepared.dataset.graph.num_nodes) > 0
        loader = self._loader(queries[found.any(1)], self.train_split, seed=self.seed)
        if self.trainer is not None:  # on a resume Lightning draws the first batch before it sets the epoch
            cast(EpochBatches, loader.sampler).set_epoch(self.trainer.current_epoch)
        return loader

    def val_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return batches of the validation split, in order."""
        return self._loader(self.prepared.dataset.split(self.val_split).queries, self.val_split, seed=None)

    def _loader(self, queries: Tensor, split: str, *, seed: int | None) -> DataLoader[CandidateGraphs]:
        batches = _GraphBatches(self.prepared, queries, split, vectors=self.vectors)
        sampler = EpochBatches(len(queries), batch_size=self.batch_size, seed=seed)
        return DataLoader(batches, batch_size=None, sampler=sampler)


class EpochBatches(Sampler[list[int]]):
    """Batches of indices whose order depends on a seed and the epoch; each process of a group takes its share.

    Args:
        num_items: Items to draw from.
        batch_size: Items per batch; the last one may be smaller.
        seed: Seed of the shuffling; None keeps the order.
    """

    def __init__(self, num_items: int, *, batch_size: int, seed: int | None) -> None:
        self.num_items = num_items
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        rank, world = _rank_and_world()
        share = len(range(rank, self.num_items, world)) if self.seed is None else self.num_items // world
        return -(-share // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        rank, world = _rank_and_world()
        order = torch.arange(self.num_items)
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = torch.randperm(self.num_items, generator=generator)[: self.num_items // world * world]
        share = order[rank::world].tolist()
        for start in range(0, len(share), self.batch_size):
            yield share[start : start + self.batch_size]


class _GraphBatches(Dataset[CandidateGraphs]):
    def __init__(self, prepared: PreparedDataset, queries: Tensor, split: str, *, vectors: bool) -> None:
        self.prepared, self.queries, self.split, self.vectors = prepared, queries, split, vectors

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, batch: list[int]) -> CandidateGraphs:  # a whole batch at once
        return self.prepared.graphs(self.queries[batch], split=self.split, vectors=self.vectors)


def _rank_and_world() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1
