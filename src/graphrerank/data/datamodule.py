"""Batches of candidate graphs for training and validation.

A batch contains the queries of one optimiser step, regardless of the number of processes. Each process loads its share
of the queries, which may be empty, so an epoch has the same steps with the same queries on any number of devices.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Any, NamedTuple

import lightning as L
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler, SequentialSampler

from graphrerank.core import CandidateGraphs, ModelInputs
from graphrerank.core.model_inputs import SCORES
from graphrerank.data.augmentation import CandidateAugmentation, QueryDraws
from graphrerank.data.batch_plans import BatchPlan, BudgetBatches, FixedBatches, budget_capacity
from graphrerank.data.candidates import PreparedDataset
from graphrerank.utils.checks import UserError, check_counts, check_not_negative

Graphs = Callable[[Tensor], CandidateGraphs]  # Function that builds the graphs of the given items of a data set.
NUM_WORKERS = 4  # Maximum number of worker processes that build batches for a GPU.


class ResumableDataModule(L.LightningDataModule):
    """Base class of data modules whose batches depend only on a seed and the epoch.

    The batches are the same when a run resumes within an epoch. A subclass builds the sampler of its training loader
    with :meth:`training_batches` and wraps it in a :class:`Loader`, which counts the consumed batches.

    Args:
        batch_size: Number of items per batch.
        seed: Seed of the order of items.
    """

    def __init__(self, *, batch_size: int = 32, seed: int = 0) -> None:
        super().__init__()
        check_counts(batch_size=batch_size)
        self.batch_size = batch_size
        self.seed = seed
        self._progress: dict[str, int] = {}

    def training_batches(
        self,
        sizes: Sequence[int],
        *,
        shares: Sequence[float] | None = None,
        plans: Sequence[BatchPlan] | None = None,
    ) -> "EpochBatches":
        """Return the sampler of training batches, set to the trainer's epoch.

        Args:
            sizes: Number of items of each data set.
            shares: Relative share of the batches from each data set (:class:`EpochBatches`). If None, there is one data
                set.
            plans: Division of each data set into batches. If None, batches have ``batch_size`` items.

        Returns:
            Sampler that resumes where the last run stopped. With ``Trainer(overfit_batches=...)``, every epoch has the
            same batches.
        """
        overfits = self.trainer is not None and self.trainer.overfit_batches > 0
        kind = RepeatedBatches if overfits else EpochBatches
        batches = kind(
            sizes, batch_size=self.batch_size, seed=self.seed, shares=shares, progress=self._progress, plans=plans
        )
        if self.trainer is not None:  # A resumed trainer draws the first batch before it sets the epoch.
            batches.set_epoch(self.trainer.current_epoch)
        return batches

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of consumed batches, which Lightning stores in checkpoints."""
        return {key: self._progress.get(key, 0) for key in ("epoch", "served")}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue with the next batch after a checkpoint.

        Args:
            state_dict: Result of :meth:`state_dict`.
        """
        self._progress.update(state_dict, resumed=True)


class CandidateDataModule(ResumableDataModule):
    """Data module that loads the splits of one or several data sets as batches of candidate graphs.

    Order and augmentation depend only on ``seed`` and the epoch, so a resumed run sees the same batches as an
    uninterrupted one, even within an epoch. Training queries without a relevant candidate are skipped, because they
    provide no training signal, unless a teacher has scored their candidates. Validation uses all queries.

    Args:
        prepared: Data set with candidates, or several by name with the same features. Each batch comes from one data
            set.
        batch_size: Number of queries per batch.
        seed: Seed of order and augmentation.
        inputs: Tensors that the model needs.
        train_split: Name of the training split.
        val_split: Name of the validation split.
        shares: Relative share of the batches from each data set. If None, proportional to the number of training
            queries. The number of batches per epoch does not depend on the shares. A data set whose share exceeds its
            size is seen several times per epoch, and one with a smaller share only in part.
        augmentation: Augmentation of training batches. If None, they are not changed.
        validated: Names of the data sets to validate on, in order. If None, all of them.
        num_workers: Number of processes that build batches. The batches do not depend on it. If None, several processes
            build the batches of a GPU where this is safe, and none otherwise.
        prefetch: Number of batches that each process builds in advance. If None, two. Only used with processes.
        max_nodes: Maximum number of candidates per batch. If ``max_nodes`` or ``max_edges`` is set, a batch has as many
            queries of similar size as fit, and ``batch_size`` is ignored. If None, it is not limited.
        max_edges: Maximum number of edges per batch, before augmentation. If None, it is not limited.
        buffer: Number of training queries that are shuffled together. Candidates that are mapped from files
            (:func:`~graphrerank.data.candidate_table.prepare_on_disk`) are then read in a few places at a time. Several
            data sets have shares in proportion to their numbers of queries. If None or at least the number of all
            training queries, all of them are shuffled together.
        test_split: Name of the split of ``Trainer.test`` and ``Trainer.predict``.
        tested: Names of the data sets of ``Trainer.test`` and ``Trainer.predict``, in order. If None, those in
            ``validated``.

    Raises:
        UserError: If there is no data set, if the data sets have different features, if a share is missing or not
            positive, or if ``prefetch`` is set without processes.
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
        num_workers: int | None = None,
        prefetch: int | None = None,
        max_nodes: int | None = None,
        max_edges: int | None = None,
        buffer: int | None = None,
        test_split: str = "test",
        tested: Sequence[str] | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, seed=seed)
        check_counts(prefetch=prefetch, max_nodes=max_nodes, max_edges=max_edges, buffer=buffer)
        check_workers(num_workers, prefetch, reads_pairs=inputs.reads_pairs)
        self.parts = {"": prepared} if isinstance(prepared, PreparedDataset) else prepared
        if not self.parts:
            raise UserError("`prepared` must contain at least one data set, got none")
        names = {name: dataset.feature_names for name, dataset in self.parts.items()}
        if len(set(names.values())) > 1:
            raise UserError(f"`prepared` must have the same features in all data sets, got {names}")
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
        self.num_workers = num_workers
        self.prefetch = prefetch
        self.max_nodes = max_nodes
        self.max_edges = max_edges
        self.buffer = buffer
        self._plans: dict[tuple[str, str], BudgetBatches] = {}  # by data set and split
        self.test_split = test_split
        self.tested = self.validated if tested is None else list(tested)

    def train_dataloader(self) -> "Loader":
        """Return a loader of shuffled training batches."""
        queries = {name: dataset.training_queries(self.train_split) for name, dataset in self.parts.items()}
        graphs = [self._graphs(dataset, queries[name], self.train_split) for name, dataset in self.parts.items()]
        sizes = {name: len(numbers) for name, numbers in queries.items()}
        shares: list[float] | None = None
        if len(self.parts) > 1 or self.augmentation is not None:
            shares = [float((self.shares or sizes)[name]) for name in self.parts]
        buffers = buffer_shares(self.buffer, sizes)
        plans = [self._plan(name, queries[name], self.train_split, buffer=buffers[name]) for name in self.parts]
        sampler = self.training_batches([*sizes.values()], shares=shares, plans=plans)
        return self._loader(graphs, sampler, self.augmentation)

    def val_dataloader(self) -> "Loader | list[Loader]":
        """Return a loader of validation batches in order, or a list of loaders if there are several data sets."""
        return self._ordered(self.validated, self.val_split)

    def test_dataloader(self) -> "Loader | list[Loader]":
        """Return a loader of the test queries with judgements, or a list of loaders if there are several data sets.

        Raises:
            UserError: If a data set has no split ``test_split``.
        """
        return self._ordered(self.tested, self.test_split)

    def predict_dataloader(self) -> "Loader | list[Loader]":
        """Return a loader of :class:`PredictionBatch` of the test queries, or a list if there are several data sets.

        Raises:
            UserError: If a data set has no split ``test_split``.
        """
        return self._ordered(self.tested, self.test_split, with_ids=True)

    def _ordered(self, names: Sequence[str], split: str, *, with_ids: bool = False) -> "Loader | list[Loader]":
        """Return one loader per data set over all queries of a split, in their order."""
        loaders: list[Loader] = []
        for name in names:
            prepared = self.parts[name]
            queries = prepared.dataset.split(split).queries
            plans = [self._plan(name, queries, split)]
            sampler = RepeatedBatches([len(queries)], batch_size=self.batch_size, seed=None, plans=plans)
            graphs = self._graphs(prepared, queries, split)
            loaders.append(self._loader([graphs], sampler, dataset=prepared if with_ids else None))
        return loaders if len(self.parts) > 1 else loaders[0]

    def transfer_batch_to_device(
        self, batch: "CandidateGraphs | PredictionBatch", device: torch.device, _: int
    ) -> "CandidateGraphs | PredictionBatch":
        """Copy a batch from pinned memory asynchronously, while the device computes.

        Args:
            batch: Batch on the CPU.
            device: Target device.

        Returns:
            Batch on the device.
        """
        if isinstance(batch, PredictionBatch):
            return batch._replace(graphs=batch.graphs.to(device, non_blocking=True))
        return batch.to(device, non_blocking=True)

    def _loader(
        self,
        graphs: Sequence[Graphs],
        sampler: "EpochBatches",
        augmentation: CandidateAugmentation | None = None,
        *,
        dataset: PreparedDataset | None = None,
    ) -> "Loader":
        """Return a loader. By default, worker processes build the batches of a GPU in pinned memory."""
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        num_workers = self.num_workers
        if num_workers is None:
            uses_workers = on_gpu and can_fork(self.inputs.reads_pairs)
            num_workers = min(NUM_WORKERS, os.cpu_count() or 1) if uses_workers else 0
        options: dict[str, Any] = {"num_workers": num_workers, "pin_memory": on_gpu}
        if num_workers:
            options |= {"multiprocessing_context": "fork", "persistent_workers": True, "prefetch_factor": self.prefetch}
        served = _Served(graphs, augmentation, sum(sampler.sizes))
        items = served if dataset is None else _WithIds(served, dataset)
        return Loader(items, batch_size=None, sampler=sampler, **options)

    def _plan(self, name: str, queries: Tensor, split: str, *, buffer: int | None = None) -> BatchPlan:
        """Return the division of queries into batches. Sizes of graphs are measured once per data set and split."""
        if self.max_nodes is None and self.max_edges is None:
            return FixedBatches(len(queries), self.batch_size, buffer=buffer)
        if (name, split) not in self._plans:
            sizes = self.parts[name].graph_sizes(queries, with_edges=self.max_edges is not None)
            capacity = budget_capacity(sizes, max_nodes=self.max_nodes, max_edges=self.max_edges)
            self._plans[name, split] = BudgetBatches(capacity, buffer=buffer)
        return self._plans[name, split]

    def _graphs(self, prepared: PreparedDataset, queries: Tensor, split: str) -> Graphs:
        """Return a function that builds the graphs of some of ``queries``, given their positions."""
        return lambda positions: prepared.graphs(queries[positions], split=split, inputs=self.inputs)


class PredictionBatch(NamedTuple):
    """Batch of candidate graphs with the ids of their queries and passages, for ``Trainer.predict``.

    Attributes:
        graphs: Candidate graphs of ``B`` queries with ``N`` candidates.
        query_ids: Ids of the queries, ``[B]``.
        passage_ids: Ids of the candidates, ``[N]``.
    """

    graphs: CandidateGraphs
    query_ids: list[str]
    passage_ids: list[str]


class Batch(NamedTuple):
    """Batch of items from one of several data sets.

    Attributes:
        part: Index of the data set.
        items: Indices of the items in the data set.
        seed: Seed of the augmentation of this batch.
    """

    part: int
    items: list[int]
    seed: int


class EpochBatches(Sampler[Batch]):
    """Sampler of batches from one or several data sets, in an order that depends on a seed and the epoch.

    The last batch of an epoch may be smaller, and so are the batches of a data set that has fewer items than
    ``batch_size``. The number of batches is the same in each epoch.

    Args:
        sizes: Number of items of each data set.
        batch_size: Number of items per batch.
        seed: Seed of the order. If None, items are not shuffled.
        shares: Relative share of the batches from each data set. Each data set has at least one batch per epoch. If
            None, there must be one data set, and each of its items occurs once per epoch.
        progress: Dictionary with the ``epoch``, the number of its batches that were ``served`` (counted by
            :class:`Loader`), and ``resumed`` if the next epoch continues there. If None, each epoch starts from the
            beginning.
        plans: Division of each data set into batches. If None, batches have ``batch_size`` items.

    Raises:
        UserError: If ``shares`` are set and a data set has no items.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        batch_size: int,
        seed: int | None,
        shares: Sequence[float] | None = None,
        progress: dict[str, int] | None = None,
        plans: Sequence[BatchPlan] | None = None,
    ) -> None:
        self.sizes = sizes
        self.batch_size = batch_size
        self.plans = [FixedBatches(size, batch_size) for size in sizes] if plans is None else plans
        self.seed = seed
        self.epoch = 0
        self.is_mixed = shares is not None
        self.progress = {} if progress is None else progress
        batches = [plan.num_batches for plan in self.plans]
        if shares is not None and not all(batches):
            raise UserError(f"`sizes` must be positive, got {sizes}; a data set has no query with a relevant candidate")
        self.counts = batches
        if shares is not None:
            self.counts = [max(1, round(sum(batches) * share / sum(shares))) for share in shares]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch. Lightning calls this method.

        Args:
            epoch: Number of the epoch, from 0.
        """
        self.epoch = epoch

    def __len__(self) -> int:
        return sum(self.counts)

    def __iter__(self) -> Iterator[Batch]:
        progress = self.progress
        is_resumed = progress.pop("resumed", False)
        resumes = is_resumed and progress["epoch"] == self.epoch and progress["served"] < len(self)
        progress.update(epoch=self.epoch, served=progress["served"] if resumes else 0)
        # the factor exceeds any number of epochs, so that each pair of seed and epoch has a different order
        generator = torch.Generator().manual_seed((self.seed or 0) * 1_000_003 + self._seeded_epoch)
        batches = self._mixed(generator) if self.is_mixed else self._single(generator)
        yield from islice(batches, progress["served"], None)

    @property
    def _seeded_epoch(self) -> int:
        """Epoch whose order is used."""
        return self.epoch

    def _single(self, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the batches of one data set."""
        (plan,) = self.plans
        return (Batch(0, items, 0) for items in plan.epoch(None if self.seed is None else generator))

    def _mixed(self, generator: torch.Generator) -> Iterator[Batch]:
        """Yield the batches of several data sets in random order, each with a seed."""
        batches = [
            Batch(number, items, seed=0)
            for number, (plan, count) in enumerate(zip(self.plans, self.counts, strict=True))
            for items in islice(plan.passes(generator), count)
        ]
        order = torch.randperm(len(batches), generator=generator).tolist()
        seeds = torch.randint(1 << 62, (len(batches),), generator=generator).tolist()
        if any(plan.buffer is not None for plan in self.plans):
            order = self._in_order_of_buffers([batches[index].part for index in order])
        return (batches[index]._replace(seed=seeds[index]) for index in order)

    def _in_order_of_buffers(self, dataset_of_position: Sequence[int]) -> list[int]:
        """Return the indices of the batches in an order in which those of each data set are not shuffled.

        The batches of a buffer read neighbouring rows of a file. Shuffling them would read the whole file at once.

        Args:
            dataset_of_position: Index of the data set whose next batch comes at each position of the epoch.
        """
        next_batch = list(accumulate(self.counts, initial=0))  # index of the next batch of each data set
        order = []
        for dataset in dataset_of_position:
            order.append(next_batch[dataset])
            next_batch[dataset] += 1
        return order


class RepeatedBatches(EpochBatches, SequentialSampler):  # type: ignore[misc]  # bases of different element types
    """Sampler of the same batches in every epoch.

    Lightning requires a ``SequentialSampler`` for ``overfit_batches``, and would replace any other sampler.

    Args:
        args: Positional arguments of :class:`EpochBatches`.
        kwargs: Keyword arguments of :class:`EpochBatches`.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        EpochBatches.__init__(self, *args, **kwargs)

    @property
    def _seeded_epoch(self) -> int:
        return 0


class _Served(Dataset[CandidateGraphs]):
    """Candidate graphs of this process's share of a batch, augmented."""

    def __init__(self, sets: Sequence[Graphs], augmentation: CandidateAugmentation | None, num_items: int) -> None:
        self.sets = sets
        self.augmentation = augmentation
        self.num_items = num_items
        self.share = process_share()

    def __len__(self) -> int:
        """Return the number of items, at which Lightning's ``Tuner.scale_batch_size`` stops increasing the batch."""
        return self.num_items

    def __getitem__(self, batch: Batch) -> CandidateGraphs:
        graphs = self.sets[batch.part](torch.tensor(batch.items, dtype=torch.int64)[self.share])
        if self.augmentation is None:
            return graphs
        generator = torch.Generator().manual_seed(batch.seed)
        return self.augmentation(graphs, QueryDraws(generator, len(batch.items), self.share))


class _WithIds(Dataset[PredictionBatch]):
    """Candidate graphs of this process's share of a batch, with the ids of queries and passages."""

    def __init__(self, served: "_Served", dataset: PreparedDataset) -> None:
        self.served = served
        self.dataset = dataset.dataset

    def __len__(self) -> int:
        return len(self.served)

    def __getitem__(self, batch: Batch) -> PredictionBatch:
        graphs = self.served[batch]
        assert graphs.query_index is not None
        assert graphs.nodes is not None
        query_ids, passage_ids = self.dataset.query_ids, self.dataset.graph.node_ids
        return PredictionBatch(
            graphs,
            [query_ids[query] for query in graphs.query_index.tolist()],
            [passage_ids[node] for node in graphs.nodes.tolist()],
        )


class Loader(DataLoader[Any]):
    """Data loader that counts the consumed batches of :class:`EpochBatches`, excluding prefetched ones."""

    sampler: EpochBatches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        for batch in super().__iter__():
            self.sampler.progress["served"] += 1
            yield batch


def buffer_shares(buffer: int | None, sizes: Mapping[str, int]) -> dict[str, int | None]:
    """Divide a shuffle buffer among data sets, in proportion to their sizes.

    Args:
        buffer: Number of items that are shuffled together, or None for all.
        sizes: Number of items of each data set.

    Returns:
        Number of items of each data set that are shuffled together, at least 1. None for all, also if the buffer has
        room for the items of all data sets.

    Example:
        >>> buffer_shares(30, {"a": 100, "b": 50}), buffer_shares(150, {"a": 100, "b": 50})
        ({'a': 20, 'b': 10}, {'a': None, 'b': None})
    """
    total = sum(sizes.values())
    if buffer is None or buffer >= total:
        return dict.fromkeys(sizes)
    return {name: max(1, buffer * size // total) for name, size in sizes.items()}


def can_fork(reads_pairs: bool) -> bool:
    """Return whether processes can be forked to build batches.

    Args:
        reads_pairs: Whether the model encodes (query, passage) pairs. Forking is unsafe once the cross-encoder has
            initialised CUDA.
    """
    return hasattr(os, "fork") and not reads_pairs


def check_workers(num_workers: int | None, prefetch: int | None, *, reads_pairs: bool) -> None:
    """Check the settings of the processes that build batches.

    Args:
        num_workers: Number of processes, or None for the default.
        prefetch: Number of batches that each process builds in advance, or None for the default.
        reads_pairs: Whether the model encodes (query, passage) pairs.

    Raises:
        UserError: If the number is negative, processes are not supported, or ``prefetch`` is set without processes.
    """
    check_not_negative(num_workers=num_workers or 0)
    if num_workers and not can_fork(reads_pairs):
        raise UserError(
            f"`num_workers` must be 0 for models that encode (query, passage) pairs and on systems that cannot fork, "
            f"got {num_workers}"
        )
    if prefetch is not None and num_workers == 0:
        raise UserError(f"`prefetch` must be None if `num_workers` is 0, got {prefetch}")


def process_share() -> slice:
    """Return the slice of a batch's queries for this process: every ``n``-th query if there are ``n`` processes."""
    if dist.is_available() and dist.is_initialized():
        return slice(dist.get_rank(), None, dist.get_world_size())
    return slice(None)
