"""Batches of candidate graphs for training and validation.

A batch is what one optimiser step sees, whatever the number of processes: each of a group serves its share of the
batch's queries, and an epoch has the same steps with the same queries on any number of devices. A share may be empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, islice
from typing import Any, NamedTuple, cast

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphrerank.checks import check_counts
from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws
from graphrerank.data.candidates import PreparedDataset
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.graphs.model_inputs import SCORES

Order = Callable[[torch.Generator], Tensor]  # items of a set in the order of one pass


class SplitDataModule(L.LightningDataModule):
    """Settings of data modules of candidate graphs, and the epoch at which a resumed run continues."""

    def __init__(self, batch_size: int, *, seed: int, inputs: ModelInputs, train_split: str, val_split: str) -> None:
        super().__init__()
        check_counts(batch_size=batch_size)
        self.batch_size = batch_size
        self.seed = seed
        self.inputs = inputs
        self.train_split = train_split
        self.val_split = val_split

    def resumed(self, loader: DataLoader[CandidateGraphs]) -> DataLoader[CandidateGraphs]:
        """Start at the trainer's epoch: on a resume Lightning draws the first batch before it sets the epoch."""
        if self.trainer is not None:
            cast("EpochBatches", loader.sampler).set_epoch(self.trainer.current_epoch)
        return loader


class CandidateDataModule(SplitDataModule):
    """Serve one data set's splits as batches of candidate graphs.

    Each epoch's order depends on ``seed`` and the epoch alone, so that a resumed run sees the batches of an unbroken
    one. Training queries without a relevant candidate teach nothing and are left out; validation keeps all.
    """

    def __init__(
        self,
        prepared: PreparedDataset,
        *,
        batch_size: int = 32,
        seed: int = 0,
        inputs: ModelInputs = SCORES,
        train_split: str = "train",
        val_split: str = "val",
    ) -> None:
        super().__init__(batch_size, seed=seed, inputs=inputs, train_split=train_split, val_split=val_split)
        self.prepared = prepared

    def train_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return shuffled batches of the training split."""
        queries = answerable(self.prepared, self.train_split)
        return self.resumed(self._loader(queries, self.train_split, seed=self.seed))

    def val_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return batches of the validation split, in order."""
        return self._loader(self.prepared.dataset.split(self.val_split).queries, self.val_split, seed=None)

    def _loader(self, queries: Tensor, split: str, *, seed: int | None) -> DataLoader[CandidateGraphs]:
        batches = _GraphBatches(self.prepared, queries, split, inputs=self.inputs)
        sampler = EpochBatches(len(queries), batch_size=self.batch_size, seed=seed)
        return DataLoader(batches, batch_size=None, sampler=sampler)


class MixtureDataModule(SplitDataModule):
    """Serve several data sets as batches of candidate graphs, each batch from one of them.

    An epoch has as many batches as the data sets have together, divided by ``shares``: a data set whose share exceeds
    its size is seen several times in an epoch, one with a smaller share in part. Order and augmentation depend on
    ``seed`` and the epoch alone.

    Args:
        parts: Data sets with their candidates, by name; all with the same scores per candidate.
        shares: Share of the batches by name, relative to each other; the number of training queries when None.
        augmentation: Changes training batches; None leaves them as they are.
        validated: Names of the data sets to validate on, in order; all when None.

    Raises:
        ValueError: If a share is missing, not positive or of an unknown data set, or the data sets' scores differ.
    """

    def __init__(
        self,
        parts: Mapping[str, PreparedDataset],
        *,
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
        check_parts(parts, shares)
        self.parts = parts
        self.shares = shares
        self.augmentation = augmentation
        self.validated = list(parts) if validated is None else list(validated)

    def train_dataloader(self) -> DataLoader[CandidateGraphs]:
        """Return shuffled batches of the training splits."""
        queries = {name: answerable(part, self.train_split) for name, part in self.parts.items()}
        sampler = MixtureBatches(
            {name: len(part) for name, part in queries.items()},
            shares=self.shares,
            batch_size=self.batch_size,
            seed=self.seed,
        )
        sets = [
            _GraphBatches(self.parts[name], part, self.train_split, inputs=self.inputs)
            for name, part in queries.items()
        ]
        batches = MixedGraphs(sets, augmentation=self.augmentation)
        return self.resumed(DataLoader(batches, batch_size=None, sampler=sampler))

    def val_dataloader(self) -> list[DataLoader[CandidateGraphs]]:
        """Return batches of the validation splits, one loader per data set that is validated on, in order."""
        single = (
            CandidateDataModule(
                self.parts[name], batch_size=self.batch_size, inputs=self.inputs, val_split=self.val_split
            )
            for name in self.validated
        )
        return [module.val_dataloader() for module in single]


class EpochBatches(Sampler[list[int]]):
    """Batches of indices whose order depends on a seed and the epoch.

    The last batch may be smaller; ``seed`` None keeps the order, ``order`` None draws any, equally likely.
    """

    def __init__(self, num_items: int, *, batch_size: int, seed: int | None, order: Order | None = None) -> None:
        self.num_items = num_items
        self.order = order or partial(_any_order, num_items)
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-self.num_items // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.arange(self.num_items)
        if self.seed is not None:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
            order = self.order(generator)
        for batch in torch.split(order, self.batch_size) if self.num_items else ():
            yield batch.tolist()


class MixedBatch(NamedTuple):
    """A batch of one of several sets."""

    part: int  # index of the set
    items: list[int]  # indices into it
    seed: int  # seed of this batch's augmentation


class MixtureBatches(Sampler[MixedBatch]):
    """Batches of indices into several sets.

    Args:
        sizes: Items of each, by name.
        shares: Share of the batches from each, relative to each other; each set gives at least one batch an epoch. The
            number of items when None.
        batch_size: Items per batch; fewer only if a whole set is smaller.
        seed: Of the order, with the epoch.
        orders: Draws the order of a set's items for one pass over them, by name; any order, equally likely, when None.
        in_order: Whether batches of a set come in the order of its items; else in any.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        *,
        shares: Mapping[str, float] | None,
        batch_size: int,
        seed: int,
        orders: Mapping[str, Order] | None = None,
        in_order: bool = False,
    ) -> None:
        if min(sizes.values()) < 1:
            raise ValueError(
                f"`sizes` must all be positive, got {dict(sizes)}: a data set has no query that can be answered"
            )
        self.sizes = list(sizes.values())
        self.orders = [partial(_any_order, size) if orders is None else orders[name] for name, size in sizes.items()]
        self.in_order = in_order
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        shared = [float((shares or sizes)[name]) for name in sizes]
        total = sum(-(-size // batch_size) for size in self.sizes)
        self.counts = [max(1, round(total * share / sum(shared))) for share in shared]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch (Lightning calls this)."""
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[MixedBatch]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        batches = [
            (part, items)
            for part, count in enumerate(self.counts)
            for items in islice(self._passes(part, generator), count)
        ]
        order = torch.randperm(len(batches), generator=generator).tolist()
        seeds = torch.randint(1 << 62, (len(batches),), generator=generator).tolist()
        if self.in_order:  # which set comes is drawn, not which of its batches
            stops = list(accumulate(self.counts))
            following = [iter(range(stop - count, stop)) for stop, count in zip(stops, self.counts, strict=True)]
            order = [next(following[batches[index][0]]) for index in order]
        for index in order:
            part, items = batches[index]
            yield MixedBatch(part, items, seeds[index])

    def _passes(self, part: int, generator: torch.Generator) -> Iterator[list[int]]:
        """Draw batches of one size from a set, reshuffled at each pass, without end."""
        waiting: list[int] = []
        while True:
            waiting += self.orders[part](generator).tolist()
            step = min(self.batch_size, self.sizes[part])
            while len(waiting) >= step:
                yield waiting[:step]
                del waiting[:step]


class _GraphBatches(Dataset[CandidateGraphs]):
    def __init__(self, prepared: PreparedDataset, queries: Tensor, split: str, *, inputs: ModelInputs) -> None:
        self.prepared, self.queries, self.split, self.inputs = prepared, queries, split, inputs

    def __len__(self) -> int:
        return len(self.queries)

    def __getitem__(self, batch: list[int]) -> CandidateGraphs:  # this process's share of a batch at once
        queries = self.queries[torch.tensor(batch, dtype=torch.int64)[process_share()]]
        return self.prepared.graphs(queries, split=self.split, inputs=self.inputs)


class MixedGraphs(Dataset[CandidateGraphs]):
    """The candidate graphs of a batch of one of several sets, as this process sees them.

    Args:
        parts: Return the candidate graphs of a list of items.
        augmentation: Changes them; None leaves them as they are.
    """

    def __init__(self, parts: Sequence[Any], *, augmentation: CandidateAugmentation | None) -> None:
        self.parts = parts
        self.augmentation = augmentation

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, batch: MixedBatch) -> CandidateGraphs:
        graphs: CandidateGraphs = self.parts[batch.part][batch.items]
        if self.augmentation is None:
            return graphs
        generator = torch.Generator().manual_seed(batch.seed)
        return self.augmentation(graphs, QueryDraws(generator, len(batch.items), process_share()))


def check_parts(parts: Mapping[str, PreparedDataset], shares: Mapping[str, float] | None) -> None:
    """Check that data sets can be trained on together."""
    if not parts:
        raise ValueError("`parts` must hold at least one data set, got none")
    names = {name: part.feature_names for name, part in parts.items()}
    if len(set(names.values())) > 1:
        raise ValueError(f"`parts` must have the same scores per candidate, got {names}")
    if shares is not None and (shares.keys() != parts.keys() or not all(share > 0 for share in shares.values())):
        raise ValueError(f"`shares` must give each of {list(parts)} a positive share, got {dict(shares)}")


def _any_order(size: int, generator: torch.Generator) -> Tensor:
    return torch.randperm(size, generator=generator)


def answerable(prepared: PreparedDataset, split: str) -> Tensor:
    """List a split's queries with a relevant candidate, ``[Q]``."""
    qrels = prepared.dataset.split(split)
    nodes = prepared.ranking.nodes[qrels.queries]
    relevant = qrels.relevance(qrels.queries, nodes, num_nodes=prepared.dataset.graph.num_nodes) > 0
    return qrels.queries[relevant.any(1)]


def process_share() -> slice:
    """Return which queries of a batch this process takes: every ``n``-th where ``n`` processes share it."""
    if dist.is_available() and dist.is_initialized():
        return slice(dist.get_rank(), None, dist.get_world_size())
    return slice(None)
