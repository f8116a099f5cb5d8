"""Means of the loss and the measures over a validation split that comes in batches, on one process or several."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

SumOverProcesses = Callable[[Tensor], Tensor]  # adds up a tensor over all processes, such as by `dist.all_reduce`


class ValidationMeans:
    """Accumulate a loss and measures of queries, and return their means over a whole split.

    The loss counts queries with a relevant candidate. Each measure counts the queries for which it is defined, so that
    ``PR@10/multi`` is a mean over queries with several relevant passages only. Sums and numbers of queries are kept in
    the precision and on the device of the loss, and are added up over the processes only once, in :meth:`compute`.

    Args:
        names: Names of the measures, in the order of the rows of ``per_query``.

    Example:
        >>> means = ValidationMeans(["PR@10", "PR@10/multi"])
        >>> per_query = torch.tensor([[1.0, 0.0], [1.0, torch.nan]])  # the second query has one relevant passage
        >>> means.update(torch.tensor(0.5), torch.tensor(2.0), per_query)
        >>> {name: float(mean) for name, mean in means.compute().items()}
        {'loss': 0.5, 'PR@10': 0.5, 'PR@10/multi': 1.0}
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sums: Tensor | None = None  # [1 + M]: of the loss, then of each measure
        self._num_queries: Tensor | None = None  # [1 + M]: numbers of queries that the sums count

    def update(self, loss: Tensor, num_queries: Tensor, per_query: Tensor) -> None:
        """Add a batch.

        Args:
            loss: Mean loss of the batch's queries with a relevant candidate, a scalar.
            num_queries: Number of these queries, a scalar of the loss's type.
            per_query: Measures ``[M, B]``; NaN where a measure is not defined for a query.
        """
        measured = torch.stack([per_query.nansum(1), (~per_query.isnan()).sum(1)]).to(loss)
        sums = torch.cat([(loss * num_queries).unsqueeze(0), measured[0]])
        counts = torch.cat([num_queries.unsqueeze(0), measured[1]])
        self._sums = sums if self._sums is None else self._sums + sums
        self._num_queries = counts if self._num_queries is None else self._num_queries + counts

    def compute(self, sum_over_processes: SumOverProcesses | None = None) -> dict[str, Tensor]:
        """Return the means: that of the loss as ``loss``, then each measure's by name, NaN where no query counts.

        Args:
            sum_over_processes: Adds up a tensor over the processes that share the split. None for a single process.

        Raises:
            RuntimeError: If no batch was added.
        """
        if self._sums is None or self._num_queries is None:
            raise RuntimeError("a batch must be added by `update` before `compute`")
        totals = torch.stack([self._sums, self._num_queries])  # one tensor, so that processes communicate once
        sums, num_queries = totals if sum_over_processes is None else sum_over_processes(totals)
        num_queries[:1].clamp_(min=1)  # without a relevant candidate the loss is 0
        return dict(zip(("loss", *self.names), sums / num_queries, strict=True))
