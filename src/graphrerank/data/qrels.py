"""Relevance judgements of one split, as parallel tensors."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from graphrerank._moved import warn_renamed


@dataclass(frozen=True)
class Qrels:
    """Relevance judgements of one split, one row per judged pair of query and passage.

    Attributes:
        query: Query number of each judgement, ``[J]`` int64.
        node: Passage number of each judgement, ``[J]`` int64.
        gain: Positive gain of the passage for the query, ``[J]`` float32.
        queries: Sorted numbers of the queries with a judgement, ``[Q]`` int64.
    """

    query: Tensor
    node: Tensor
    gain: Tensor

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[int, int, float]]) -> "Qrels":
        """Create judgements from rows.

        Args:
            rows: Query number, passage number and gain of each judgement.

        Returns:
            Judgements in the order of the rows.

        Example:
            >>> Qrels.from_rows([(0, 7, 1.0), (0, 3, 2.0)]).node
            tensor([7, 3])
        """
        rows = list(rows)
        queries, nodes, gains = zip(*rows, strict=True) if rows else ((), (), ())
        return cls(
            torch.tensor(queries, dtype=torch.int64),
            torch.tensor(nodes, dtype=torch.int64),
            torch.tensor(gains, dtype=torch.float32),
        )

    @classmethod
    def of(cls, rows: Iterable[tuple[int, int, float]]) -> "Qrels":
        """Deprecated alias.

        Args:
            rows: Query number, passage number and gain of each judgement.

        Returns:
            Judgements in the order of the rows.
        """
        warn_renamed("Qrels.of", "Qrels.from_rows")
        return cls.from_rows(rows)

    @property
    def queries(self) -> Tensor:
        """Sorted numbers of the queries with a judgement, ``[Q]`` int64."""
        return torch.unique(self.query)

    def select_queries(self, queries: Tensor) -> "Qrels":
        """Return the judgements of the given queries.

        Args:
            queries: Query numbers ``[Q']``.

        Returns:
            Judgements with the same query numbers.
        """
        mask = torch.isin(self.query, queries)
        return Qrels(self.query[mask], self.node[mask], self.gain[mask])

    def select_nodes(self, mask: Tensor) -> "Qrels":
        """Return the judgements of the selected passages, which are renumbered by their rank in the selection.

        Args:
            mask: Boolean mask ``[N]`` of the selected passages.

        Returns:
            Judgements with the new passage numbers.
        """
        selected, number = mask[self.node], mask.cumsum(0) - 1
        return Qrels(self.query[selected], number[self.node[selected]], self.gain[selected])

    def of_queries(self, queries: Tensor) -> "Qrels":
        """Deprecated alias of :meth:`select_queries`.

        Args:
            queries: Query numbers ``[Q']``.

        Returns:
            Judgements with the same query numbers.
        """
        warn_renamed("Qrels.of_queries", "Qrels.select_queries")
        return self.select_queries(queries)

    def of_nodes(self, mask: Tensor) -> "Qrels":
        """Deprecated alias.

        Args:
            mask: Boolean mask ``[N]`` of the selected passages.

        Returns:
            Judgements with the new passage numbers.
        """
        warn_renamed("Qrels.of_nodes", "Qrels.select_nodes")
        return self.select_nodes(mask)

    def relevance(self, queries: Tensor, nodes: Tensor, *, num_nodes: int) -> Tensor:
        """Look up the gains of candidates.

        Args:
            queries: Query numbers ``[B]``.
            nodes: Candidates ``[B, K]`` of each query, padded with -1.
            num_nodes: Number of passages in the corpus.

        Returns:
            Gains ``[B, K]`` float32, 0 for padding and for candidates without a judgement.
        """
        rows = self._rows_of(queries)
        keys = self.query[rows] * num_nodes + self.node[rows]
        return look_up(keys, self.gain[rows], pair_keys(queries, nodes, num_nodes=num_nodes), missing=0.0)

    def gains(self, queries: Tensor) -> Tensor:
        """Return all gains of each query, as for a perfect ranking.

        Args:
            queries: Query numbers ``[B]``.

        Returns:
            Gains ``[B, R]``, padded with 0.
        """
        order, query = self._by_query
        gain = self.gain[order]
        start = torch.searchsorted(query, queries)
        count = torch.searchsorted(query, queries, right=True) - start
        slot = torch.arange(int(count.max()) if count.numel() else 0)
        is_gain = slot < count[:, None]
        return torch.where(is_gain, gain[(start[:, None] + slot).clamp(max=max(gain.numel() - 1, 0))], 0.0)

    @cached_property
    def _by_query(self) -> tuple[Tensor, Tensor]:
        """Rows of the judgements ordered by query, and the query of each."""
        order = torch.argsort(self.query, stable=True)
        return order, self.query[order]

    def _rows_of(self, queries: Tensor) -> Tensor:
        """Return the rows of the judgements of queries, without sorting all judgements again for each batch."""
        order, query = self._by_query
        wanted = torch.unique(queries)
        start = torch.searchsorted(query, wanted)
        count = torch.searchsorted(query, wanted, right=True) - start
        first = torch.repeat_interleave(start - count.cumsum(0) + count, count)
        return order[first + torch.arange(len(first))]

    def share_complete(self, queries: Tensor, nodes: Tensor, *, num_nodes: int) -> float:
        """Return the share of queries whose relevant passages are all among their candidates.

        Args:
            queries: Query numbers ``[B]``.
            nodes: Candidates ``[B, K]`` of each query, padded with -1.
            num_nodes: Number of passages in the corpus.

        Returns:
            Share in [0, 1].
        """
        num_retrieved = (self.relevance(queries, nodes, num_nodes=num_nodes) > 0).sum(1)
        num_relevant = (self.gains(queries) > 0).sum(1)
        return float((num_retrieved == num_relevant).double().mean())


def pair_keys(queries: Tensor, nodes: Tensor, *, num_nodes: int) -> Tensor:
    """Return one number for each pair of a query and a candidate, for :func:`look_up`.

    Args:
        queries: Query numbers ``[B]``.
        nodes: Candidates ``[B, K]`` of each query, padded with -1.
        num_nodes: Number of passages in the corpus.

    Returns:
        Keys ``[B, K]`` int64, -1 for padding.

    Example:
        >>> pair_keys(torch.tensor([0, 2]), torch.tensor([[4, -1], [1, 3]]), num_nodes=10)
        tensor([[ 4, -1],
                [21, 23]])
    """
    return torch.where(nodes >= 0, queries[:, None] * num_nodes + nodes, -1)


def look_up(keys: Tensor, numbers: Tensor, wanted: Tensor, *, missing: float) -> Tensor:
    """Look up numbers by key.

    Args:
        keys: Distinct keys ``[J]`` int64, not negative.
        numbers: Number of each key, ``[J]``.
        wanted: Keys to look up, of any shape.
        missing: Result for keys that are not in ``keys``.

    Returns:
        Numbers in the shape of ``wanted``.

    Example:
        >>> look_up(torch.tensor([7, 3]), torch.tensor([0.5, 2.0]), torch.tensor([3, 4]), missing=0.0)
        tensor([2., 0.])
    """
    if not len(keys):
        return torch.full(wanted.shape, missing, dtype=numbers.dtype)
    sorted_keys, order = torch.sort(keys)
    slot = torch.searchsorted(sorted_keys, wanted).clamp(max=len(keys) - 1)
    return torch.where(sorted_keys[slot] == wanted, numbers[order][slot], missing)
