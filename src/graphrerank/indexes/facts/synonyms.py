"""Synonymy edges: entities whose names are alike by their vectors."""

import torch
from torch import Tensor

TILE_ROWS, TILE_COLUMNS = 512, 4096  # cosines held at once: 8 MiB of float32
MAX_NEW = 1 << 22  # pairs between two choices of the nearest


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each entity with those of a cosine of ``threshold`` or above, at most ``max_synonyms``, the nearest first.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults, with the limit, are
    HippoRAG 2's. Exact and in tiles, each pair of entities once: time grows with the square of the
    entities, memory linearly.

    Args:
        vectors: ``[E, d]``; a vector of zeros is like no other.
        threshold: :math:`\tau` in (0, 1].
        max_synonyms: Of each entity, ties by number; one end's choice makes an edge.

    Returns:
        ``[M, 2]`` int64, each pair once with the smaller number first, ascending; ``[M]`` float32 cosines.

    Raises:
        ValueError: If an argument is out of range, or a vector is not finite.

    Example:
        >>> synonym_edges(torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.0, 2.0]]), threshold=0.7)
        (tensor([[0, 1]]), tensor([0.8000]))
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"`threshold` must lie in (0, 1], got {threshold}")
    if max_synonyms < 0:
        raise ValueError(f"`max_synonyms` must not be negative, got {max_synonyms}")
    if vectors.dim() != 2 or not torch.isfinite(vectors).all():
        raise ValueError(f"`vectors` must be a finite [E, d] matrix, got {list(vectors.shape)}")
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    found = _Nearest(len(unit), max_synonyms, unit.device)
    for start in range(0, len(unit) if max_synonyms else 0, TILE_ROWS):
        rows = unit[start : start + TILE_ROWS]
        for left in range(start, len(unit), TILE_COLUMNS):  # each pair of entities lies in one tile
            cosine = rows @ unit[left : left + TILE_COLUMNS].T
            row, column = torch.nonzero(cosine >= threshold, as_tuple=True)
            near, row, column = cosine[row, column], row + start, column + left
            above = row < column
            found.add(row[above], column[above], near[above])
    return found.edges()


class _Nearest:
    """The most alike ones of each entity among the pairs seen so far; either end may choose a pair."""

    def __init__(self, num_entities: int, limit: int, device: torch.device) -> None:
        self._num_entities, self._limit = max(1, num_entities), limit
        self._pairs = torch.zeros(2, 0, dtype=torch.int64, device=device)  # (who chooses, whom)
        self._cosines = torch.zeros(0, device=device)
        self._new: list[tuple[Tensor, Tensor]] = []

    def add(self, first: Tensor, second: Tensor, cosine: Tensor) -> None:
        pairs = torch.stack([first, second])
        self._new += [(pairs, cosine), (pairs.flip(0), cosine)]
        if sum(len(part) for _, part in self._new) > MAX_NEW:
            self._choose()

    def edges(self) -> tuple[Tensor, Tensor]:
        self._choose()
        low, high = self._pairs.min(0).values, self._pairs.max(0).values
        key, place = torch.unique(low * self._num_entities + high, return_inverse=True)
        weight = self._cosines.new_zeros(len(key)).index_copy_(0, place, self._cosines)  # equal from either end
        first = torch.div(key, self._num_entities, rounding_mode="floor")
        return torch.stack([first, key - first * self._num_entities], dim=1), weight

    def _choose(self) -> None:
        """Keep of each entity's pairs the nearest, ties by number."""
        pairs = torch.cat([self._pairs, *(pairs for pairs, _ in self._new)], dim=1)
        cosines = torch.cat([self._cosines, *(part for _, part in self._new)])
        self._new = []
        order = torch.argsort(pairs[1], stable=True)
        order = order[torch.argsort(cosines[order], descending=True, stable=True)]
        order = order[torch.argsort(pairs[0][order], stable=True)]
        pairs, cosines = pairs[:, order], cosines[order]
        place = torch.arange(len(cosines), device=cosines.device) - torch.searchsorted(pairs[0], pairs[0])
        kept = place < self._limit
        self._pairs, self._cosines = pairs[:, kept], cosines[kept]
