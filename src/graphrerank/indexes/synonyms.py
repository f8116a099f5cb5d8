"""Synonymy edges: entities whose names are alike by their vectors."""

import torch
from torch import Tensor

BLOCK_SCORES = 1 << 23  # cosines held at once: 32 MiB of float32


def synonym_edges(vectors: Tensor, *, threshold: float = 0.8, max_synonyms: int = 100) -> tuple[Tensor, Tensor]:
    r"""Join each entity with those of a cosine of ``threshold`` or above, at most ``max_synonyms``, the nearest first.

    Source: "EA-GraphRAG", 2026, section 3.1, :math:`\cos(M(n), M(v)) \geq \tau`; the defaults, with the limit, are
    HippoRAG 2's. Exact and in blocks: time grows with the square of the entities, memory linearly.

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
    num_entities = len(vectors)
    unit = torch.nn.functional.normalize(vectors.float(), dim=1)
    keys, cosines = [torch.zeros(0, dtype=torch.int64, device=unit.device)], [unit.new_zeros(0)]
    rows = max(1, BLOCK_SCORES // max(1, num_entities))
    for start in range(0, num_entities if max_synonyms else 0, rows):
        cosine = unit[start : start + rows] @ unit.T
        own = torch.arange(len(cosine), device=unit.device)
        cosine[own, start + own] = -1.0
        row, column = torch.nonzero(cosine >= threshold, as_tuple=True)  # row by row
        near = cosine[row, column]
        order = torch.argsort(near, descending=True, stable=True)
        order = order[torch.argsort(row[order], stable=True)]
        row, column, near = row[order], column[order], near[order]
        place = torch.arange(len(row), device=unit.device) - torch.searchsorted(row, row)
        row, column, near = (part[place < max_synonyms] for part in (row + start, column, near))
        keys.append(torch.minimum(row, column) * num_entities + torch.maximum(row, column))
        cosines.append(near)
    key, inverse = torch.unique(torch.cat(keys), return_inverse=True)
    weight = torch.zeros(len(key), device=unit.device).scatter_reduce_(0, inverse, torch.cat(cosines), "amax")
    first = torch.div(key, max(1, num_entities), rounding_mode="floor")
    return torch.stack([first, key - first * num_entities], dim=1), weight
