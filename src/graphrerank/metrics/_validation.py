"""The argument checks that every measure makes."""

from torch import Tensor

from graphrerank.checks import check_counts


def check_rankings(ranked_relevance: Tensor, qrels: Tensor, top_k: int | None) -> None:
    """Refuse what no measure of rankings takes, such as a ranking of more relevant documents than the query has."""
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
