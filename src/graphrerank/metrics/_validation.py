"""The argument checks that every measure makes."""

from torch import Tensor

from graphrerank.checks import check_counts


def check_rankings(ranked_relevance: Tensor, qrels: Tensor, top_k: int | None) -> None:
    """Require rankings and judgements of the same queries, and a positive cutoff.

    Args:
        ranked_relevance: ``[num_queries, depth]``, gain of the document at each rank; 0 = not relevant, or padding.
        qrels: ``[num_queries, max_relevant]``, all positive gains of each query, padded with 0.
        top_k: Cutoff rank, or None.

    Raises:
        ValueError: If a shape is not as above, a query has no relevant document, a ranking holds more relevant
            documents than the query has (a document ranked twice, or ids of another query), or ``top_k`` is below 1.

    Example:
        >>> import torch
        >>> check_rankings(torch.zeros(2, 3), torch.tensor([[1, 1], [0, 0]]), 10)
        Traceback (most recent call last):
        ValueError: `qrels` must hold a positive gain for every query, got none in rows [1]; leave these queries out
    """
    check_counts(top_k=top_k)
    for name, tensor in (("ranked_relevance", ranked_relevance), ("qrels", qrels)):
        if tensor.ndim != 2:
            raise ValueError(f"`{name}` must have two dimensions, one row a query, got shape {tuple(tensor.shape)}")
    if len(ranked_relevance) != len(qrels):
        raise ValueError(f"`qrels` must have a row for each of {len(ranked_relevance)} rankings, got {len(qrels)}")
    num_relevant = (qrels > 0).sum(dim=1)
    if (empty := _rows(num_relevant == 0)) is not None:
        raise ValueError(
            f"`qrels` must hold a positive gain for every query, got none in rows {empty}; leave these queries out"
        )
    if (crowded := _rows((ranked_relevance > 0).sum(dim=1) > num_relevant)) is not None:
        raise ValueError(
            f"`ranked_relevance` must not hold more relevant documents than `qrels`, got more in rows {crowded}; "
            "rank each document once and take both from the same query"
        )


def _rows(bad: Tensor) -> str | None:
    """Name the first ten rows where ``bad`` is True, or None where there is none."""
    rows: list[int] = bad.nonzero().flatten().tolist()
    if not rows:
        return None
    return str(rows) if len(rows) <= 10 else f"{rows[:10]} and {len(rows) - 10} more"
