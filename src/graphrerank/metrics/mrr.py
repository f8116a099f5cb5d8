"""Reciprocal rank, whose mean over queries is MRR."""

import torch
from torch import Tensor

from graphrerank.metrics._validation import check_rankings


def reciprocal_rank(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int | None = None) -> Tensor:
    r"""Give one over the rank of the first relevant document.

    .. math:: \mathrm{RR} = \frac{1}{\min \{ r : y_r > 0 \}}, \qquad 0 \text{ if no relevant document is ranked}

    Source: Voorhees, "The TREC-8 Question Answering Track Report", 1999; trec_eval's ``recip_rank``.

    Arguments and errors as of all :mod:`~graphrerank.metrics` of rankings, but ``top_k`` may be None; in [0, 1].

    Example:
        >>> reciprocal_rank(torch.tensor([[0, 0, 0, 2], [1, 0, 0, 1]]), torch.tensor([[2, 0], [1, 1]]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    relevant = (ranked_relevance[:, :top_k] > 0).to(torch.float64)
    rank = torch.arange(1, relevant.shape[1] + 1, dtype=torch.float64, device=relevant.device)
    # One rank of nothing in front, so that a ranking of depth 0 has a best reciprocal rank: 0.
    return torch.nn.functional.pad(relevant / rank, (1, 0)).amax(dim=1)
