"""Batches of candidate graphs for training and validation.

A batch is what one optimiser step sees, whatever the number of processes: each of a group serves its share of the
batch's queries, and an epoch has the same steps with the same queries on any number of devices. A share may be empty.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import NamedTuple

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from graphrerank.checks import UserError, check_counts
from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws
from graphrerank.data.candidates import CandidateShards, PreparedDataset
from graphrerank.graphs import CandidateGraphs, ModelInputs
from graphrerank.graphs.model_inputs import SCORES

Graphs = Callable[[Tensor], CandidateGraphs]  # of some items of a set
Loader = DataLoader[CandidateGraphs]


class CandidateDataModule(L.LightningDataModule):
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
        shards: Candidates of training queries on disk, by data set; empty where they are in memory. Shards are read in
            random order, as many at once as ``buffer`` queries are; their queries are shuffled together.
        buffer: Training queries of shards to hold in memory, at least one shard of each data set. With a buffer for all
            queries batches are those of candidates in memory.
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
        shards: Mapping[str, CandidateShards] | None = None,
        buffer: int | None = None,
    ) -> None:
        super().__init__()
        self.parts = {"": prepared} if isinstance(prepared, PreparedDataset) else prepared
        check_counts(batch_size=batch_size, buffer=buffer)
        if not self.parts:
            raise UserError("`prepared` must hold at least one data set, got none")
        names = {name: part.feature_names for name, part in self.parts.items()}
        if len(set(names.values())) > 1:
            raise UserError(f"`prepared` must have the same scores per candidate, got {names}")
        if shares is not None and (
            shares.keys() != self.parts.keys() or not all(share > 0 for share in shares.values())
        ):
            raise UserError(f"`shares` must give each of {list(self.parts)} a positive share, got {dict(shares)}")
        if shards and inputs.reads_pairs:
            raise UserError("`buffer` must be null for a model that reads pairs of query and passage")
        self.batch_size = batch_size
        self.seed = seed
        self.inputs = inputs
        self.train_split = train_split
        self.val_split = val_split
        self.shares = shares
        self.augmentation = augmentation
        self.validated = list(self.parts) if validated is None else list(validated)
        self.shards = shards or {}
        self.buffer = buffer
        self._progress: dict[str, int] = {}

    def train_dataloader(self) -> Loader:
        """Return shuffled batches of the training splits."""
        split = self.train_split
        held = (self._in_memory(part, part.answerable(split), split) for part in self.parts.values())
        graphs, orders = map(list, zip(*(self._streamed() if self.shards else held), strict=True))
        shares: list[float] | None = None
        if len(self.parts) > 1 or self.augmentation is not None:
            sizes = dict(zip(self.parts, (order.num_items for order in orders), strict=True))
            shares = [float((self.shares or sizes)[name]) for name in self.parts]
        settings = {"batch_size": self.batch_size, "seed": self.seed}
        sampler = EpochBatches(orders, shares=shares, progress=self._progress, **settings)
        if self.trainer is not None:  # on a resume Lightning draws the first batch before it sets the epoch
            sampler.set_epoch(self.trainer.current_epoch)
        return DataLoader(_Served(graphs, self.augmentation), batch_size=None, sampler=sampler)

    def val_dataloader(self) -> Loader | list[Loader]:
        """Return batches of the validation split, in order; of several data sets, a list of a loader for each."""
        loaders: list[Loader] = []
        for part in map(self.parts.__getitem__, self.validated):
            graphs, order = self._in_memory(part, part.dataset.split(self.val_split).queries, self.val_split)
            sampler = EpochBatches([order], batch_size=self.batch_size, seed=None)
            loaders.append(DataLoader(_Served([graphs], None), batch_size=None, sampler=sampler))
        return loaders if len(self.parts) > 1 else loaders[0]

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and how many of its batches were served, which Lightning keeps in checkpoints."""
        return {key: self._progress.get(key, 0) for key in ("epoch", "served")}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue with the next batch."""
        self._progress.update(state_dict, resumed=True)

    def _in_memory(self, part: PreparedDataset, queries: Tensor, split: str) -> tuple[Graphs, "ShardOrder"]:
        graphs: Graphs = lambda items: part.graphs(queries[items], split=split, inputs=self.inputs)  # noqa: E731
        return graphs, ShardOrder([len(queries)])

    def _streamed(self) -> Iterator[tuple[Graphs, "ShardOrder"]]:
        assert self.buffer is not None
        total = sum(sum(shards.sizes) for shards in self.shards.values())
        for shards in map(self.shards.__getitem__, self.parts):
            order = ShardOrder(shards.sizes, buffer=self.buffer * sum(shards.sizes) // total)
            yield shards.serve(inputs=self.inputs, hold=order.shards_at_once), order


class ShardOrder:
    """Draws an order of the items in shards of some sizes: shards at random, their items shuffled together.

    ``buffer`` items are held at once, at least those of one shard; all if None.
    """

    def __init__(self, sizes: Sequence[int], *, buffer: int | None = None) -> None:
        self.sizes = sizes
        self.num_items = sum(sizes)
        self.is_whole = buffer is None or buffer >= self.num_items  # all items are shuffled together
        self.shards_at_once = len(sizes) if buffer is None or self.is_whole else max(1, buffer // max(sizes))

    def __call__(self, generator: torch.Generator) -> Tensor:
        """Return all items, numbered through the shards, ``[num_items]``."""
        if self.shards_at_once == len(self.sizes):
            return torch.randperm(self.num_items, generator=generator)
        items = torch.split(torch.arange(self.num_items), list(self.sizes))
        order = []
        for window in torch.split(torch.randperm(len(self.sizes), generator=generator), self.shards_at_once):
            held = torch.cat([items[shard] for shard in window.tolist()])
            order.append(held[torch.randperm(len(held), generator=generator)])
        return torch.cat(order)


class Batch(NamedTuple):
    """A batch of one of several sets."""

    part: int  # index of the set
    items: list[int]  # indices into it
    seed: int  # seed of this batch's augmentation


class EpochBatches(Sampler[Batch]):
    """Batches of the items of one set or several, in an order that depends on a seed and the epoch.

    ``orders`` draw the order of each set's items, which stays as it is where ``seed`` is None. ``shares`` are those of
    the batches from each set, relative to each other; each gives at least one batch an epoch. None: one set, each of
    whose items comes once. ``progress`` holds the ``epoch`` and how many of its batches were ``served``, and whether to
    continue there. A batch has fewer items at the end of an epoch, and of a mixed set that is smaller.
    """

    def __init__(
        self,
        orders: Sequence[ShardOrder],
        *,
        batch_size: int,
        seed: int | None,
        shares: Sequence[float] | None = None,
        progress: dict[str, int] | None = None,
    ) -> None:
        self.orders = orders
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0
        self.is_mixed = shares is not None
        self.progress = {} if progress is None else progress
        batches = [-(-order.num_items // batch_size) for order in orders]
        if shares is not None and not all(batches):
            sizes = [order.num_items for order in orders]
            raise UserError(f"`orders` must all have items, got {sizes}: a data set has no query that can be answered")
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
        for batch in islice(self._mixed(generator) if self.is_mixed else self._single(generator), at["served"], None):
            at["served"] += 1
            yield batch

    def _single(self, generator: torch.Generator) -> Iterator[Batch]:
        (order,) = self.orders
        items = torch.arange(order.num_items) if self.seed is None else order(generator)
        return (Batch(0, batch.tolist(), 0) for batch in torch.split(items, self.batch_size) if len(batch))

    def _mixed(self, generator: torch.Generator) -> Iterator[Batch]:
        batches = [
            Batch(part, items, seed=0)
            for part, count in enumerate(self.counts)
            for items in islice(self._passes(self.orders[part], generator), count)
        ]
        order = torch.randperm(len(batches), generator=generator).tolist()
        seeds = torch.randint(1 << 62, (len(batches),), generator=generator).tolist()
        if not all(order.is_whole for order in self.orders):  # which set comes is drawn, not which of its batches
            stops = list(accumulate(self.counts))
            following = [iter(range(stop - count, stop)) for stop, count in zip(stops, self.counts, strict=True)]
            order = [next(following[batches[index].part]) for index in order]
        return (batches[index]._replace(seed=seeds[index]) for index in order)

    def _passes(self, order: ShardOrder, generator: torch.Generator) -> Iterator[list[int]]:
        """Draw batches of one size from a set, reshuffled at each pass, without end."""
        waiting: list[int] = []
        step = min(self.batch_size, order.num_items)
        while True:
            waiting += order(generator).tolist()
            while len(waiting) >= step:
                yield waiting[:step]
                del waiting[:step]


class _Served(Dataset[CandidateGraphs]):
    """The candidate graphs of this process's share of a batch of one of several sets, augmented."""

    def __init__(self, sets: Sequence[Graphs], augmentation: CandidateAugmentation | None) -> None:
        self.sets = sets
        self.augmentation = augmentation

    def __getitem__(self, batch: Batch) -> CandidateGraphs:
        share = process_share()
        graphs = self.sets[batch.part](torch.tensor(batch.items, dtype=torch.int64)[share])
        if self.augmentation is None:
            return graphs
        generator = torch.Generator().manual_seed(batch.seed)
        return self.augmentation(graphs, QueryDraws(generator, len(batch.items), share))


def process_share() -> slice:
    """Return which queries of a batch this process takes: every ``n``-th where ``n`` processes share it."""
    if dist.is_available() and dist.is_initialized():
        return slice(dist.get_rank(), None, dist.get_world_size())
    return slice(None)
