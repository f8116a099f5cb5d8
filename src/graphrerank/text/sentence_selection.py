"""Extractive summaries: sentences that stand for many, none of them twice."""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

SAME = 0.95  # cosine from which two sentences say the same
FULL = 7 / 8  # of the limit, from which nothing is added: what still fits is short and says little


def pick_sentences(vectors: Tensor, num_tokens: Sequence[int], *, limit: int, centrality: float = 0.7) -> list[int]:
    r"""Pick sentences one by one while one fits and the limit is not all but reached, each time that of the best score.

    .. math:: \lambda \cos(s, \bar s) - (1 - \lambda) \max(0, \max_{p \in P} \cos(s, p))

    where :math:`\bar s` is the mean over all sentences and :math:`P` what is picked; ties go to the earlier one. What
    says the same as one that is picked is not picked.

    Source: Carbonell and Goldstein, "The Use of MMR", 1998, with the document's centroid in the place of a query
    (Radev et al., "Centroid-based summarization of multiple documents", 2004).

    Args:
        vectors: ``[n, d]`` unit vectors of the sentences.
        num_tokens: ``n`` lengths.
        limit: Most tokens of all picked ones together.
        centrality: :math:`\lambda` in [0, 1].

    Returns:
        Numbers of sentences in the order in which they were picked; none where none fits.

    Example:
        >>> import torch
        >>> east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
        >>> pick_sentences(torch.stack([east, east, north]), [3, 3, 3], limit=9, centrality=0.5)
        [0, 2]
    """
    if not len(vectors):
        return []
    unit, tokens = vectors.numpy(), np.asarray(num_tokens)
    mean = unit.mean(axis=0)
    central = unit @ (mean / max(float(np.linalg.norm(mean)), 1e-12))
    nearest = np.zeros(len(unit))
    picked: list[int] = []
    enough = FULL * limit
    used = 0
    free = tokens <= limit
    while free.any() and used < enough:
        score = np.where(free, centrality * central - (1 - centrality) * nearest, -np.inf)
        best = int(score.argmax())
        picked.append(best)
        used += int(tokens[best])
        nearest = np.maximum(nearest, unit @ unit[best])
        free[best] = False
        free &= (tokens <= limit - used) & (nearest < SAME)
    return picked
