"""Division of a data set's items into batches: a fixed number of items, or a budget of nodes and edges per batch."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError, check_counts

BUCKET_WIDTH = 8  # items with room for n to n + n / 8 others share a bucket, so at most a ninth of a budget is unused
SHUFFLE_BLOCK = 32  # consecutive items that enter a shuffle buffer together, so that a disk reads them at once


class GraphSizes(NamedTuple):
    """Sizes of the candidate graphs of some queries.

    Attributes:
        nodes: Number of candidates of each query, ``[Q]`` int64.
        edges: Number of edges among the candidates of each query, ``[Q]`` int64. None if unknown.
    """

    nodes: Tensor
    edges: Tensor | None = None


class BatchPlan(ABC):
    """Division of the items of one data set into batches, with the same number of batches in each epoch.

    Args:
        size: Number of items.
        buffer: Number of items that are shuffled together (:func:`shuffled_windows`). If None or at least ``size``,
            all items are.
    """

    def __init__(self, size: int, *, buffer: int | None = None) -> None:
        check_counts(buffer=buffer)
        self.size = size
        #: Number of items that are shuffled together. None if all items are.
        self.buffer = None if buffer is None or buffer >= size else buffer

    @property
    @abstractmethod
    def num_batches(self) -> int:
        """Number of batches in which each item occurs once."""

    @abstractmethod
    def epoch(self, generator: torch.Generator | None) -> Iterator[list[int]]:
        """Yield batches in which each item occurs once.

        Args:
            generator: Source of the order. If None, items are not shuffled.
        """

    @abstractmethod
    def passes(self, generator: torch.Generator) -> Iterator[list[int]]:
        """Yield batches without end. Items are shuffled in each pass.

        Args:
            generator: Source of the order.
        """


class FixedBatches(BatchPlan):
    """Batches of a fixed number of items.

    Args:
        size: Number of items.
        batch_size: Number of items per batch. The last batch of an epoch may be smaller. In endless passes, all batches
            have the same size, which is that of the data set if it has fewer items.
        buffer: Number of items that are shuffled together. If None, all items are.
    """

    def __init__(self, size: int, batch_size: int, *, buffer: int | None = None) -> None:
        super().__init__(size, buffer=buffer)
        self.batch_size = batch_size

    @property
    def num_batches(self) -> int:
        """Number of batches in which each item occurs once."""
        return -(-self.size // self.batch_size)

    def epoch(self, generator: torch.Generator | None) -> Iterator[list[int]]:
        """Yield batches in which each item occurs once.

        Args:
            generator: Source of the order. If None, items are not shuffled.
        """
        items = torch.arange(self.size) if generator is None else self._shuffled(generator)
        return (batch.tolist() for batch in torch.split(items, self.batch_size) if len(batch))

    def passes(self, generator: torch.Generator) -> Iterator[list[int]]:
        """Yield batches of one size without end. Items are shuffled in each pass.

        Args:
            generator: Source of the order.
        """
        waiting: list[int] = []
        step = min(self.batch_size, self.size)
        while True:
            waiting += self._shuffled(generator).tolist()
            while len(waiting) >= step:
                yield waiting[:step]
                del waiting[:step]

    def _shuffled(self, generator: torch.Generator) -> Tensor:
        return torch.cat(list(shuffled_windows(self.size, generator, buffer=self.buffer)))


class BudgetBatches(BatchPlan):
    """Batches of items of similar size that fit into a budget, as many as fit.

    Items are divided into buckets by the number of items of their size that fit. A batch takes items of one bucket, in
    random order, and the items that are left over in a bucket join the next bucket of larger items. The number of
    batches is therefore the same in each epoch, although the composition of the batches differs.

    Args:
        capacity: Number of items that fit into a batch if all have the size of the item, ``[Q]`` int64, at least 1.
        buffer: Number of items that are shuffled together. An item waits in its bucket until there are enough items of
            its size for a batch. If None, all items are shuffled together.

    Example:
        >>> plan = BudgetBatches(torch.tensor([1, 4, 4, 4, 4, 2]))
        >>> plan.num_batches, list(plan.epoch(None))
        (3, [[1, 2, 3, 4], [5], [0]])
    """

    def __init__(self, capacity: Tensor, *, buffer: int | None = None) -> None:
        super().__init__(len(capacity), buffer=buffer)
        limits = torch.tensor(bucket_limits(int(capacity.max()) if len(capacity) else 1))
        bucket = limits[torch.searchsorted(limits, capacity, right=True) - 1]
        #: Items of each bucket by the number of items per batch, from the smallest items to the largest.
        self.buckets = {
            limit: (bucket == limit).nonzero().flatten() for limit in sorted(set(bucket.tolist()), reverse=True)
        }
        self._limits = bucket  # number of items per batch in the bucket of each item

    @property
    def num_batches(self) -> int:
        """Number of batches in which each item occurs once."""
        total, left_over = 0, 0
        for limit, items in self.buckets.items():
            total += (left_over + len(items)) // limit
            left_over = (left_over + len(items)) % limit
        return total + bool(left_over)

    def epoch(self, generator: torch.Generator | None) -> Iterator[list[int]]:
        """Yield batches in which each item occurs once.

        Args:
            generator: Source of the order of items and batches. If None, nothing is shuffled.
        """
        if generator is not None and self.buffer is not None:
            return self._windowed_epoch(generator)
        batches, left_over = list[list[int]](), torch.tensor([], dtype=torch.int64)
        for limit, items in self.buckets.items():
            items = torch.cat([left_over, items])
            if generator is not None:
                items = items[torch.randperm(len(items), generator=generator)]
            whole = len(items) // limit * limit
            batches += items[:whole].view(-1, limit).tolist()
            left_over = items[whole:]
        if len(left_over):
            batches.append(left_over.tolist())
        order = range(len(batches)) if generator is None else torch.randperm(len(batches), generator=generator).tolist()
        return (batches[index] for index in order)

    def _windowed_epoch(self, generator: torch.Generator) -> Iterator[list[int]]:
        """Yield the batches of one window of items after the other. Their number is that of an unwindowed epoch."""
        waiting: dict[int, list[int]] = {limit: [] for limit in self.buckets}
        for window in shuffled_windows(self.size, generator, buffer=self.buffer):
            batches = list[list[int]]()
            for item, limit in zip(window.tolist(), self._limits[window].tolist(), strict=True):
                waiting[limit].append(item)
                if len(waiting[limit]) == limit:
                    batches.append(waiting[limit])
                    waiting[limit] = []
            for index in torch.randperm(len(batches), generator=generator).tolist():
                yield batches[index]
        left_over: list[int] = []
        for limit, items in waiting.items():
            left_over = left_over + items
            while len(left_over) >= limit:
                yield left_over[:limit]
                left_over = left_over[limit:]
        if left_over:
            yield left_over

    def passes(self, generator: torch.Generator) -> Iterator[list[int]]:
        """Yield batches without end. Items are shuffled in each pass.

        Args:
            generator: Source of the order.
        """
        while True:
            yield from self.epoch(generator)


def shuffled_windows(size: int, generator: torch.Generator, *, buffer: int | None) -> Iterator[Tensor]:
    """Yield all items in shuffled windows of at most ``buffer`` items.

    A window consists of random blocks of at most ``SHUFFLE_BLOCK`` consecutive items, so that a window of rows in a
    file is read in a few places.

    Args:
        size: Number of items.
        generator: Source of the order.
        buffer: Maximum number of items of a window. If None or at least ``size``, there is one window with a
            permutation of all items.

    Yields:
        Items of each window, int64.

    Example:
        >>> windows = list(shuffled_windows(10, torch.Generator().manual_seed(0), buffer=4))
        >>> sorted(len(window) for window in windows), torch.cat(windows).sort().values.tolist()
        ([2, 4, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    """
    if buffer is None or buffer >= size:
        yield torch.randperm(size, generator=generator)
        return
    length = min(SHUFFLE_BLOCK, buffer)
    starts = torch.arange(0, size, length)
    order = starts[torch.randperm(len(starts), generator=generator)]
    for blocks in torch.split(order, buffer // length):
        items = (blocks[:, None] + torch.arange(length)).flatten()
        items = items[items < size]
        yield items[torch.randperm(len(items), generator=generator)]


def bucket_limits(largest: int) -> list[int]:
    """Return the numbers of items per batch of all buckets, in ascending order.

    Args:
        largest: Largest number of items that fit into a batch.

    Example:
        >>> bucket_limits(20)
        [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 20]
    """
    limits = [1]
    while (following := limits[-1] + max(1, limits[-1] // BUCKET_WIDTH)) <= largest:
        limits.append(following)
    return limits


def budget_capacity(sizes: GraphSizes, *, max_nodes: int | None, max_edges: int | None) -> Tensor:
    """Return how many graphs of each query's size fit into a batch.

    Args:
        sizes: Sizes of the graphs.
        max_nodes: Maximum number of candidates per batch. If None, it is not limited.
        max_edges: Maximum number of edges per batch. If None, it is not limited.

    Returns:
        Capacity ``[Q]`` int64, between 1 and ``Q``.

    Raises:
        UserError: If a single graph exceeds the budget, or a number is not positive.

    Example:
        >>> sizes = GraphSizes(torch.tensor([10, 20]), torch.tensor([5, 100]))
        >>> budget_capacity(sizes, max_nodes=100, max_edges=150).tolist()
        [2, 1]
    """
    check_counts(max_nodes=max_nodes, max_edges=max_edges)
    capacity = torch.full_like(sizes.nodes, max(1, len(sizes.nodes)))
    for name, numbers, limit in (("max_nodes", sizes.nodes, max_nodes), ("max_edges", sizes.edges, max_edges)):
        if limit is None or not len(capacity):
            continue
        assert numbers is not None
        if (largest := int(numbers.max())) > limit:
            raise UserError(f"`{name}` must be at least the size of the largest graph, {largest}, got {limit}")
        capacity = torch.minimum(capacity, limit // numbers.clamp(min=1))
    return capacity
