"""Measures of rankings: nDCG, reciprocal rank, recall, capped and perfect recall; and their names."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError, check_counts


def check_rankings(ranked_relevance: Tensor, qrels: Tensor, top_k: int | None) -> None:
    """Refuse what no measure of rankings takes, such as a ranking of more relevant documents than the query has."""
    check_counts(top_k=top_k)
    for name, tensor in (("ranked_relevance", ranked_relevance), ("qrels", qrels)):
        if tensor.ndim != 2:
            raise UserError(f"`{name}` must have two dimensions, one row a query, got shape {tuple(tensor.shape)}")
    if len(ranked_relevance) != len(qrels):
        raise UserError(f"`qrels` must have a row for each of {len(ranked_relevance)} rankings, got {len(qrels)}")
    num_relevant = (qrels > 0).sum(dim=1)
    if (num_relevant == 0).any():
        row = int((num_relevant == 0).nonzero()[0])
        raise UserError(
            f"`qrels` must hold a positive gain for every query, got none in row {row}; leave such queries out"
        )
    if (crowded := (ranked_relevance > 0).sum(dim=1) > num_relevant).any():
        raise UserError(
            f"`ranked_relevance` must not hold more relevant documents than `qrels`, got more in row "
            f"{int(crowded.nonzero()[0])}; rank each document once and take both from the same query"
        )


def ndcg(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the discounted gain of the top K as a share of the best one reachable.

    .. math::
        \mathrm{nDCG@}K = \frac{\mathrm{DCG@}K(y)}{\mathrm{DCG@}K(y^{*})}, \qquad
        \mathrm{DCG@}K(y) = \sum_{r=1}^{K} \frac{y_r}{\log_2(1 + r)}

    where ``y`` are the gains in rank order and ``y*`` all gains of the query from the highest down.

    Source: Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002, in the form of
    trec_eval's ``ndcg_cut_K``: the gain is the relevance itself, not ``2 ** y - 1``.

    Example:
        >>> ndcg(torch.tensor([[0, 1]]), torch.tensor([[1]]), top_k=2)  # 1 / log2(3)
        tensor([0.6309], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return _dcg(ranked_relevance[:, :top_k]) / _dcg(qrels.sort(dim=1, descending=True).values[:, :top_k])


def _dcg(gain: Tensor) -> Tensor:
    rank = torch.arange(1, gain.shape[1] + 1, dtype=torch.float64, device=gain.device)
    return (gain.to(torch.float64).clamp(min=0) / torch.log2(1 + rank)).sum(dim=1)


def reciprocal_rank(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int | None = None) -> Tensor:
    r"""Give one over the rank of the first relevant document.

    .. math:: \mathrm{RR} = \frac{1}{\min \{ r : y_r > 0 \}}, \qquad 0 \text{ if no relevant document is ranked}

    Source: Voorhees, "The TREC-8 Question Answering Track Report", 1999; trec_eval's ``recip_rank``.

    ``top_k`` may be None: as deep as the ranking goes.

    Example:
        >>> reciprocal_rank(torch.tensor([[0, 0, 0, 2], [1, 0, 0, 1]]), torch.tensor([[2, 0], [1, 1]]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    relevant = (ranked_relevance[:, :top_k] > 0).to(torch.float64)
    rank = torch.arange(1, relevant.shape[1] + 1, dtype=torch.float64, device=relevant.device)
    # a rank of nothing in front, so that a ranking of depth 0 has a best reciprocal rank, 0
    return torch.nn.functional.pad(relevant / rank, (1, 0)).amax(dim=1)


def recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the share of a query's relevant documents that are in its top K.

    .. math:: \mathrm{R@}K = \frac{|R \cap \mathrm{top}_K|}{|R|}

    Source: trec_eval's ``recall_K``. Not the R@K of "EA-GraphRAG", which is a hit rate (1 if any is found).

    Example:
        >>> recall(torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=3)
        tensor([0.5000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return (ranked_relevance[:, :top_k] > 0).sum(dim=1).double() / (qrels > 0).sum(dim=1)


def capped_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Give the share found of the relevant documents that the top K has room for.

    .. math:: \mathrm{CR@}K = \frac{|R \cap \mathrm{top}_K|}{\min(K, |R|)}

    Source: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models",
    2021, where it is called capped recall.

    Example:
        >>> capped_recall(torch.tensor([[1, 1, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=2)
        tensor([1.], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return (ranked_relevance[:, :top_k] > 0).sum(dim=1).double() / (qrels > 0).sum(dim=1).clamp(max=top_k)


def perfect_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return whether all relevant documents of a query are in its top K.

    .. math:: \mathrm{PR@}K = [\,R \subseteq \mathrm{top}_K\,]

    Source: "GraphER: An Efficient Graph-Based Enrichment and Reranking Method for Retrieval-Augmented Generation",
    "Metrics". A query with more than K relevant documents is always 0.

    Example:
        >>> ranked_relevance = torch.tensor([[1, 0, 1], [1, 0, 1]])
        >>> perfect_recall(ranked_relevance, torch.tensor([[1, 1, 0], [1, 1, 1]]), top_k=3)
        tensor([1., 0.], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    num_found = (ranked_relevance[:, :top_k] > 0).sum(dim=1)
    return (num_found == (qrels > 0).sum(dim=1)).to(torch.float64)


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "PR": perfect_recall,
    "R": recall,
    "CR": capped_recall,
    "nDCG": ndcg,
    "MRR": reciprocal_rank,
}
_ALIASES = {"R_cap": "CR"}  # as others write it
_NAME = re.compile(r"(?P<base>PR|R|CR|R_cap|nDCG|MRR)(@(?P<top_k>[1-9][0-9]*))?(?P<multi>/multi)?")


@dataclass(frozen=True)
class Measure:
    """A ranking measure; calling it scores each query.

    Example:
        >>> parse_measure("PR@10/multi")
        Measure(base='PR', top_k=10, multi=True)
    """

    base: str  # one of `PR`, `R`, `CR`, `nDCG`, `MRR`
    top_k: int | None  # cutoff rank; None = as deep as the ranking goes (`MRR` only)
    multi: bool = False  # count only queries with more than one relevant document

    @property
    def name(self) -> str:
        """The measure's one name everywhere, such as ``PR@10/multi``."""
        cutoff = "" if self.top_k is None else f"@{self.top_k}"
        return f"{self.base}{cutoff}{'/multi' if self.multi else ''}"

    def __call__(self, ranked_relevance: Tensor, qrels: Tensor) -> Tensor:
        """Score each query, ``[num_queries]`` float64 in [0, 1]; NaN where ``/multi`` leaves it out."""
        per_query = _FUNCTIONS[self.base](ranked_relevance, qrels, top_k=self.top_k)
        return per_query.masked_fill((qrels > 0).sum(dim=1) < 2, torch.nan) if self.multi else per_query


def parse_measure(name: str) -> Measure:
    """Read a measure's name; a ValueError if it has none of the known forms.

    These are ``PR@K``, ``R@K``, ``R_cap@K`` or ``CR@K`` (capped recall), ``nDCG@K``, ``MRR@K`` or ``MRR``, each also
    with ``/multi`` (only queries with more than one relevant document count).

    Example:
        >>> parse_measure("nDCG@10").name, parse_measure("R_cap@10").name
        ('nDCG@10', 'CR@10')
    """
    match = _NAME.fullmatch(name)
    if match is None or (match["top_k"] is None and match["base"] != "MRR"):
        known = "PR@K, R@K, R_cap@K or CR@K (capped recall), nDCG@K, MRR@K or MRR, K above 0, each also as NAME/multi"
        raise UserError(f"`name` must be {known}; got {name!r}")
    base = _ALIASES.get(match["base"], match["base"])
    return Measure(base, int(match["top_k"]) if match["top_k"] else None, match["multi"] is not None)
