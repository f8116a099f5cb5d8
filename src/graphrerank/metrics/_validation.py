"""The argument checks that every measure makes."""

from torch import Tensor


def check_rankings(ranked_relevance: Tensor, qrels: Tensor) -> None:
    """Refuse rankings and judgements that do not belong together.

    Args:
        ranked_relevance: ``[num_queries, depth]``, gain of the document at each rank; 0 = not relevant, or padding.
        qrels: ``[num_queries, max_relevant]``, all positive gains of each query, padded with 0.

    Raises:
        ValueError: If a shape is not as above, a query has no relevant document, or a ranking holds more relevant
            documents than the query has (a document ranked twice, or ids of another query).

    Example:
        >>> import torch
        >>> check_rankings(torch.zeros(2, 3), torch.tensor([[1, 1], [0, 0]]))
        Traceback (most recent call last):
        ValueError: `qrels` must hold a positive gain for every query, got none in rows [1]; leave these queries out
    """
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


def check_top_k(top_k: int) -> None:
    """Refuse a cutoff that is not a positive integer.

    Args:
        top_k: The cutoff rank the caller passed.

    Raises:
        ValueError: If ``top_k`` is not an integer of at least 1.

    Example:
        >>> check_top_k(0)
        Traceback (most recent call last):
        ValueError: `top_k` must be a positive integer, got 0
    """
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise ValueError(f"`top_k` must be a positive integer, got {top_k!r}")


def _rows(bad: Tensor) -> str | None:
    """Name the first ten rows where ``bad`` is True, or None where there is none."""
    rows: list[int] = bad.nonzero().flatten().tolist()
    if not rows:
        return None
    return str(rows) if len(rows) <= 10 else f"{rows[:10]} and {len(rows) - 10} more"
