"""Batches of candidate graphs for training and validation.

A batch is what one optimiser step sees, whatever the number of processes: each of a group serves its share of the
batch's queries, and an epoch has the same steps with the same queries on any number of devices. A share may be empty.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.core.model_inputs import SCORES
from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws
from graphrerank.data.candidates import PreparedDataset
from graphrerank.utils.checks import UserError, check_counts

Graphs = Callable[[Tensor], CandidateGraphs]  # of some items of a set
NUM_WORKERS = 4  # processes that build batches for a GPU, at most


class ResumableDataModule(L.LightningDataModule):
    """Base of data modules whose batches depend on a seed and the epoch alone, also after a resume within an epoch.

    A subclass builds the sampler of its training loader with :meth:`training_batches` and serves it with a
    :class:`Loader`, which counts the batches that were taken.

    Args:
        batch_size: Number of items of a batch.
        seed: Seed of the order.
    """

    def __init__(self, *, batch_size: int = 32, seed: int = 0) -> None:
        super().__init__()
        check_counts(batch_size=batch_size)
        self.batch_size = batch_size
        self.seed = seed
        self._progress: dict[str, int] = {}

    def training_batches(self, sizes: Sequence[int], *, shares: Sequence[float] | None = None) -> "EpochBatches":
        """Return the sampler of the training's batches, at the trainer's epoch; arguments as :class:`EpochBatches`."""
        batches = EpochBatches(
            sizes, batch_size=self.batch_size, seed=self.seed, shares=shares, progress=self._progress
        )
        if self.trainer is not None:  # on a resume Lightning draws the first batch before it sets the epoch
            batches.set_epoch(self.trainer.current_epoch)
        return batches

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many of its batches were served, which Lightning keeps in checkpoints."""
        return {key: self._progress.get(key, 0) for key in ("epoch", "served")}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue with the next batch."""
        self._progress.update(state_dict, resumed=True)


class CandidateDataModule(ResumableDataModule):
    """Serve the splits of one data set or several as batches of candidate graphs.

    Order and augmentation depend on ``seed`` and the epoch alone, so that a resumed run sees the batches of an unbroken
    one, also within an epoch. Training queries without a relevant candidate teach nothing and are left out; validation
    keeps all.

    Args:
        prepared: A data set with its candidates, or several by name, with the same scores per candidate; each batch is
            from one of them.
        batch_size: Queries of a batch.
        seed: Seed of order and augmentation.
        inputs: The inputs of a model.
        train_split: Split to train on.
        val_split: Split to validate on.
        shares: Share of the batches by data set, relative to each other; None for the number of training queries. An
            epoch has as many batches as the data sets have together: one whose share exceeds its size is seen several
            times, one with a smaller share in part.
        augmentation: Changes training batches; None leaves them as they are.
        validated: Names of the data sets to validate on, in order; None for all.
    """

    def __init__(
        self,
        prepared: PreparedDataset | Mapping[str, PreparedDataset],
        *,
        batch_size: int = 32,
        seed: int = 0,
        inputs: ModelInputs = SCORES,
        train_split: str = "train",
        val_split: str = "val",
        shares: Mapping[str, float] | None = None,
        augmentation: CandidateAugmentation | None = None,
        validated: Sequence[str] | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed)
        self.parts = {"": prepared} if isinstance(prepared, PreparedDataset) else prepared
        if not self.parts:
            raise UserError("`prepared` must hold at least one data set, got none")
        names = {name: part.feature_names for name, part in self.parts.items()}
        if len(set(names.values())) > 1:
            raise UserError(f"`prepared` must have the same scores per candidate, got {names}")
        if shares is not None and (
            shares.keys() != self.parts.keys() or not all(share > 0 for share in shares.values())
        ):
            raise UserError(f"`shares` must give each of {list(self.parts)} a positive share, got {dict(shares)}")
        self.inputs = inputs
        self.train_split = train_split
        self.val_split = val_split
        self.shares = shares
        self.augmentation = augmentation
        self.validated = list(self.parts) if validated is None else list(validated)

    def train_dataloader(self) -> "Loader":
        """Return shuffled batches of the training splits."""
        queries = {name: part.answerable(self.train_split) for name, part in self.parts.items()}
        graphs = [self._graphs(part, queries[name], self.train_split) for name, part in self.parts.items()]
        sizes = {name: len(answerable) for name, answerable in queries.items()}
        shares: list[float] | None = None
        if len(self.parts) > 1 or self.augmentation is not None:
            shares = [float((self.shares or sizes)[name]) for name in self.parts]
        sampler = self.training_batches([*sizes.values()], shares=shares)
        return self._loader(graphs, sampler, self.augmentation)

    def val_dataloader(self) -> "Loader | list[Loader]":
        """Return batches of the validation split, in order; of several data sets, a list of a loader for each."""
        loaders: list[Loader] = []
        for part in map(self.parts.__getitem__, self.validated):
            queries = part.dataset.split(self.val_split).queries
            sampler = EpochBatches([len(queries)], batch_size=self.batch_size, seed=None)
            loaders.append(self._loader([self._graphs(part, queries, self.val_split)], sampler))
        return loaders if len(self.parts) > 1 else loaders[0]

    def transfer_batch_to_device(self, batch: CandidateGraphs, device: torch.device, _: int) -> CandidateGraphs:
        """Copy a batch from pinned memory while the device computes."""
        return batch.to(device, non_blocking=True)

    def _loader(
        self, graphs: Sequence[Graphs], sampler: "EpochBatches", augmentation: CandidateAugmentation | None = None
    ) -> "Loader":
        """Return a loader; for a GPU memory is pinned, and processes build the batches."""
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        can_fork = hasattr(os, "fork") and not self.inputs.reads_pairs  # whose cross-encoder may be on the GPU
        num_workers = min(NUM_WORKERS, os.cpu_count() or 1) if on_gpu and can_fork else 0
        more: dict[str, Any] = {"num_workers": num_workers, "pin_memory": on_gpu}
        more |= {"multiprocessing_context": "fork", "persistent_workers": True} if num_workers else {}
        return Loader(_Served(graphs, augmentation), batch_size=None, sampler=sampler, **more)

    def _graphs(self, dataset_index: PreparedDataset, queries: Tensor, split: str) -> Graphs:
        return lambda items: dataset_index.graphs(queries[items], split=split, inputs=self.inputs)


class Batch(NamedTuple):
    """A batch of one of several sets."""

    part: int  # index of the set
    items: list[int]  # indices into it
    seed: int  # seed of this batch's augmentation


class EpochBatches(Sampler[Batch]):
    """Batches of the items of one set or several, in an order that depends on a seed and the epoch.

    ``sizes`` are those of the sets, whose items stay in order where ``seed`` is None. ``shares`` are those of the
    batches from each set, relative to each other; each gives at least one batch an epoch. None: one set, each of whose
    items comes once. ``progress`` holds the ``epoch`` and how many of its batches were ``served`` (:class:`Loader`
    counts them), and whether to continue there. A batch has fewer items at the end of an epoch, and of a mixed set that
    is smaller.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        batch_size: int,
        seed: int | None,
        shares: Sequence[float] | None = None,
        progress: dict[str, int] | None = None,
    ) -> None:
        self.sizes = sizes
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self.is_mixed = shares is not None
        self.progress = {} if progress is None else progress
        batches = [-(-size // batch_size) for size in sizes]
        if shares is not None and not all(batches):
            raise UserError(f"`sizes` must be positive, got {sizes}: a data set has no query that can be answered")
        self.counts = batches
        if shares is not None:
            self.counts = [max(1, round(sum(batches) * share / sum(shares))) for share in shares]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[Batch]:
        at = self.progress
        resumes = at.pop("resumed", False) and at["epoch"] == self.epoch and at["served"] < len(self)
        at.update(epoch=self.epoch, served=at["served"] if resumes else 0)
        generator = torch.Generator().manual_seed((self.seed or 0) * 1_000_003 + self.epoch)
        yield from islice(self._mixed(generator) if self.is_mixed else self._single(generator), at["served"], None)

    def _single(self, generator: torch.Generator) -> Iterator[Batch]:
        (size,) = self.sizes
        items = torch.arange(size) if self.seed is None else torch.randperm(size, generator=generator)
        return (Batch(0, batch.tolist(), 0) for batch in torch.split(items, self.batch_size) if len(batch))

    def _mixed(self, generator: torch.Generator) -> Iterator[Batch]:
        batches = [
            Batch(part, items, seed=0)
            for part, count in enumerate(self.counts)
            for items in islice(self._passes(self.sizes[part], generator), count)
        ]
        order = torch.randperm(len(batches), generator=generator).tolist()
        seeds = torch.randint(1 << 62, (len(batches),), generator=generator).tolist()
        return (batches[index]._replace(seed=seeds[index]) for index in order)

    def _passes(self, size: int, generator: torch.Generator) -> Iterator[list[int]]:
        """Draw batches of one size from a set, reshuffled at each pass, without end."""
        waiting: list[int] = []
        step = min(self.batch_size, size)
        while True:
            waiting += torch.randperm(size, generator=generator).tolist()
            while len(waiting) >= step:
                yield waiting[:step]
                del waiting[:step]


class _Served(Dataset[CandidateGraphs]):
    """The candidate graphs of this process's share of a batch of one of several sets, augmented."""

    def __init__(self, sets: Sequence[Graphs], augmentation: CandidateAugmentation | None) -> None:
        self.sets = sets
        self.augmentation = augmentation
        self.share = process_share()

    def __getitem__(self, batch: Batch) -> CandidateGraphs:
        graphs = self.sets[batch.part](torch.tensor(batch.items, dtype=torch.int64)[self.share])
        if self.augmentation is None:
            return graphs
        generator = torch.Generator().manual_seed(batch.seed)
        return self.augmentation(graphs, QueryDraws(generator, len(batch.items), self.share))


class Loader(DataLoader[Any]):
    """Serves the batches of :class:`EpochBatches` and counts those that were taken; its processes may be ahead."""

    sampler: EpochBatches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            self.sampler.progress["served"] += 1
            yield batch


def process_share() -> slice:
    """Return which queries of a batch this process takes: every ``n``-th where ``n`` processes share it."""
    if dist.is_available() and dist.is_initialized():
        return slice(dist.get_rank(), None, dist.get_world_size())
    return slice(None)
