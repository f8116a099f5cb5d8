"""Random numbers for the queries of a batch."""

import torch
from torch import Tensor


class QueryDraws:
    """Draw for every query of a batch, and keep the draws of some.

    Processes that share a batch draw the same from the same seed, so that a query's draws do not depend on how many
    they are.

    Args:
        generator: Where the numbers come from.
        num_queries: Queries of the whole batch, ``n``.
        share: Which of them are kept, ``B`` of ``n``.

    Example:
        >>> whole, half = (QueryDraws(torch.Generator().manual_seed(0), 4, slice(0, None, step)) for step in (1, 2))
        >>> torch.equal(whole.uniform(3)[::2], half.uniform(3))
        True
    """

    def __init__(self, generator: torch.Generator, num_queries: int, share: slice = slice(None)) -> None:
        self.generator = generator
        self.num_queries = num_queries
        self.share = share

    def uniform(self, *shape: int) -> Tensor:
        """Draw from [0, 1), ``[B, *shape]``."""
        return torch.rand(self.num_queries, *shape, generator=self.generator)[self.share]

    def choice(self, options: int) -> Tensor:
        """Draw from ``0`` to ``options - 1``, ``[B]`` int64."""
        return torch.randint(options, (self.num_queries,), generator=self.generator)[self.share]
