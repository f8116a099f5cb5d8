"""Batch-wise means of the loss and the measures over a validation split, for one or several processes."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

#: Function that sums a tensor over all processes, for example with ``dist.all_reduce``.
SumOverProcesses = Callable[[Tensor], Tensor]


class ValidationMeans:
    """Accumulate the loss and the measures of batches, and compute their means over the whole split.

    The loss is averaged over the queries with a relevant candidate. Each measure is averaged over the queries for which
    it is defined; ``PR@10/multi``, for example, over the queries with several relevant passages. The accumulators have
    the precision and the device of the loss. They are summed over the processes once, in :meth:`compute`.

    Args:
        names: Names of the measures, in the order of the rows of ``per_query`` in :meth:`update`.

    Attributes:
        names: Names of the measures.

    Example:
        >>> means = ValidationMeans(["PR@10", "PR@10/multi"])
        >>> per_query = torch.tensor([[1.0, 0.0], [1.0, torch.nan]])  # the second query has one relevant passage
        >>> means.update(torch.tensor(0.5), torch.tensor(2.0), per_query)
        >>> {name: float(mean) for name, mean in means.compute().items()}
        {'loss': 0.5, 'PR@10': 0.5, 'PR@10/multi': 1.0}
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._sums: Tensor | None = None  # [1 + M]: sum of the loss, then of each measure
        self._num_queries: Tensor | None = None  # [1 + M]: number of queries in each sum

    def update(self, loss: Tensor, num_queries: Tensor, per_query: Tensor) -> None:
        """Add a batch.

        Args:
            loss: Scalar mean loss over the queries of the batch with a relevant candidate.
            num_queries: Number of queries with a relevant candidate, a scalar with the dtype of the loss.
            per_query: Measures ``[M, B]``. NaN if a measure is not defined for a query.
        """
        measured = torch.stack([per_query.nansum(1), (~per_query.isnan()).sum(1)]).to(loss)
        sums = torch.cat([(loss * num_queries).unsqueeze(0), measured[0]])
        counts = torch.cat([num_queries.unsqueeze(0), measured[1]])
        self._sums = sums if self._sums is None else self._sums + sums
        self._num_queries = counts if self._num_queries is None else self._num_queries + counts

    def compute(self, sum_over_processes: SumOverProcesses | None = None) -> dict[str, Tensor]:
        """Return the means over all batches.

        Args:
            sum_over_processes: Function that sums a tensor over the processes that share the split. None for a single
                process.

        Returns:
            Mean loss as ``loss``, and the mean of each measure by name. NaN for a measure that is not defined for any
            query.

        Raises:
            RuntimeError: If no batch was added.
        """
        if self._sums is None or self._num_queries is None:
            raise RuntimeError("`update` must be called before `compute`")
        totals = torch.stack([self._sums, self._num_queries])  # one tensor, so that one reduction is enough
        sums, num_queries = totals if sum_over_processes is None else sum_over_processes(totals)
        num_queries[:1].clamp_(min=1)  # the loss is 0 if no query has a relevant candidate
        return dict(zip(("loss", *self.names), sums / num_queries, strict=True))
