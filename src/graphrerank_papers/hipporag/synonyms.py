"""Synonymy edges between entities with similar name vectors."""

import torch
from torch import Tensor

from graphrerank.checks import check_not_negative, check_positive_share
from graphrerank.graphs.sparse_rows import positions_in_rows

TILE_ROWS, TILE_COLUMNS = 512, 4096  # cosines held at once: 8 MiB of float32
MAX_PENDING = 1 << 22  # pairs collected between two selections of the nearest


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each entity with its nearest entities of cosine ``threshold`` or above.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults and the limit are
    HippoRAG 2's. The search is exact, in tiles: quadratic in time, linear in memory.

    Args:
        vectors: ``[E, d]``; a zero vector has no synonyms.
        threshold: :math:`\tau` in (0, 1].
        max_synonyms: Maximum that an entity chooses, ties broken by index; either end may choose a pair.

    Returns:
        ``[M, 2]`` int64, unique pairs, the smaller index first, ascending; ``[M]`` float32 cosines.

    Example:
        >>> synonym_edges(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]]), threshold=0.7)
        (tensor([[0, 1]]), tensor([0.8000]))
    """
    check_positive_share(threshold=threshold)
    check_not_negative(max_synonyms=max_synonyms)
    if vectors.dim() != 2 or not torch.isfinite(vectors).all():
        raise ValueError(f"`vectors` must be a finite [E, d] matrix, got {list(vectors.shape)}")
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    nearest = _Nearest(len(unit), max_synonyms, unit.device)
    for start in range(0, len(unit) if max_synonyms else 0, TILE_ROWS):
        rows = unit[start : start + TILE_ROWS]
        for left in range(start, len(unit), TILE_COLUMNS):  # each pair of entities lies in one tile
            cosine = rows @ unit[left : left + TILE_COLUMNS].T
            row, column = torch.nonzero(cosine >= threshold, as_tuple=True)
            cosine, row, column = cosine[row, column], row + start, column + left
            above = row < column
            nearest.add(row[above], column[above], cosine[above])
    return nearest.edges()


class _Nearest:
    """The nearest entities of each entity among the pairs seen so far."""

    def __init__(self, num_entities: int, limit: int, device: torch.device) -> None:
        self._num_entities, self._limit = max(1, num_entities), limit
        self._pairs = torch.zeros(2, 0, dtype=torch.int64, device=device)  # (entity, chosen synonym)
        self._cosines = torch.zeros(0, device=device)
        self._pending: list[tuple[Tensor, Tensor]] = []

    def add(self, first: Tensor, second: Tensor, cosine: Tensor) -> None:
        pairs = torch.stack([first, second])
        self._pending += [(pairs, cosine), (pairs.flip(0), cosine)]
        if sum(len(cosine) for _, cosine in self._pending) > MAX_PENDING:
            self._select()

    def edges(self) -> tuple[Tensor, Tensor]:
        self._select()
        low, high = self._pairs.min(0).values, self._pairs.max(0).values
        key, pair = torch.unique(low * self._num_entities + high, return_inverse=True)
        weight = self._cosines.new_zeros(len(key)).index_copy_(0, pair, self._cosines)  # equal from either end
        return torch.stack([key // self._num_entities, key % self._num_entities], dim=1), weight

    def _select(self) -> None:
        """Keep the nearest pairs of each entity; ties are broken by index."""
        pairs = torch.cat([self._pairs, *(pairs for pairs, _ in self._pending)], dim=1)
        cosines = torch.cat([self._cosines, *(cosine for _, cosine in self._pending)])
        self._pending = []
        order = torch.argsort(pairs[1], stable=True)
        order = order[torch.argsort(cosines[order], descending=True, stable=True)]
        order = order[torch.argsort(pairs[0][order], stable=True)]
        pairs, cosines = pairs[:, order], cosines[order]
        nearest = positions_in_rows(pairs[0]) < self._limit
        self._pairs, self._cosines = pairs[:, nearest], cosines[nearest]
