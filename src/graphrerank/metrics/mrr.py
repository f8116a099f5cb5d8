"""Reciprocal rank, whose mean over queries is MRR."""

import torch
from torch import Tensor

from graphrerank.metrics._validation import check_rankings


def reciprocal_rank(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int | None = None) -> Tensor:
    r"""Give one over the rank of the first relevant document.

    .. math:: \mathrm{RR} = \frac{1}{\min \{ r : y_r > 0 \}}, \qquad 0 \text{ if no relevant document is ranked}

    Source: Voorhees, "The TREC-8 Question Answering Track Report", 1999; trec_eval's ``recip_rank``.

    Args:
        ranked_relevance: ``[num_queries, depth]``, gain of the document at each rank; 0 = not relevant, or padding.
        qrels: ``[num_queries, max_relevant]``, all positive gains of each query in any order, padded with 0.
        top_k: Look no further than this rank; None = as deep as the ranking goes.

    Returns:
        ``[num_queries]``, float64, in [0, 1].

    Raises:
        ValueError: If shapes do not fit, a query has no relevant document or fewer than its ranking holds, or
            ``top_k`` is below 1.

    Example:
        >>> reciprocal_rank(torch.tensor([[0, 0, 0, 2], [1, 0, 0, 1]]), torch.tensor([[2, 0], [1, 1]]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    relevant = (ranked_relevance[:, :top_k] > 0).to(torch.float64)
    rank = torch.arange(1, relevant.shape[1] + 1, dtype=torch.float64, device=relevant.device)
    # One rank of nothing in front, so that a ranking of depth 0 has a best reciprocal rank: 0.
    return torch.nn.functional.pad(relevant / rank, (1, 0)).amax(dim=1)
