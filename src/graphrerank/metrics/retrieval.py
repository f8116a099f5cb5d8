"""Ranking measures accumulated over batches and processes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from graphrerank.checks import UserError
from graphrerank.metrics.ranking import parse_measure


class RankingMeasures(Metric):
    """Mean of several ranking measures over all queries seen.

    The states are one sum and one count per measure, so that memory does not grow with the queries and processes add
    up. Queries are scored in float64 on the CPU and summed in float32, as not every accelerator has float64.

    ``measures`` are names that :func:`parse_measure` reads, such as ``["PR@10", "PR@10/multi"]``, at least one and none
    twice; the log key is the ``prefix`` and the lower-cased name.

    Example:
        >>> measures = RankingMeasures(["PR@2", "MRR"])
        >>> measures.update(torch.tensor([[0, 1], [1, 0]]), torch.tensor([[1, 0], [1, 1]]))
        >>> measures.compute()
        {'val/pr@2': tensor(0.5000), 'val/mrr': tensor(0.7500)}
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False

    total: Tensor
    num_queries: Tensor

    def __init__(self, measures: Sequence[str], prefix: str = "val/") -> None:
        super().__init__()
        if not measures or len(set(measures)) != len(measures):
            raise UserError(f"`measures` must name at least one measure and none twice, got {list(measures)}")
        self.measures = tuple(parse_measure(name) for name in measures)
        self.prefix = prefix
        # [num_measures] each
        self.add_state("total", torch.zeros(len(measures)), dist_reduce_fx="sum")
        self.add_state("num_queries", torch.zeros(len(measures), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, ranked_relevance: Tensor, qrels: Tensor) -> None:
        """Add a batch of queries; arguments and errors as :meth:`Measure.__call__`."""
        ranked_relevance, qrels = ranked_relevance.cpu(), qrels.cpu()
        per_query = torch.stack([measure(ranked_relevance, qrels) for measure in self.measures])
        # Not in place: after Trainer.validate the states are inference tensors, which Trainer.fit may not change.
        self.total = self.total + per_query.nansum(dim=1).to(self.total)
        self.num_queries = self.num_queries + (~per_query.isnan()).sum(dim=1).to(self.num_queries)

    def compute(self) -> dict[str, Tensor]:
        """Return the mean of each measure, in [0, 1], by keys such as ``val/ndcg@10``; NaN where no query counted."""
        mean = self.total / self.num_queries
        return {self.prefix + measure.name.lower(): mean[index] for index, measure in enumerate(self.measures)}
