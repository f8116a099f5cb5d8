"""Ranking measures and their names: nDCG, reciprocal rank, recall, capped recall and perfect recall."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.utils.checks import UserError, check_counts


def check_rankings(ranked_relevance: Tensor, qrels: Tensor, top_k: int | None) -> None:
    """Check the arguments of a ranking measure.

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``.
        top_k: Cutoff rank. None for no cutoff.

    Raises:
        UserError: If a shape does not fit, ``top_k`` is not positive, or a query has no relevant document or fewer than
            its ranking contains.
    """
    check_counts(top_k=top_k)
    for name, tensor in (("ranked_relevance", ranked_relevance), ("qrels", qrels)):
        if tensor.ndim != 2:
            raise UserError(
                f"`{name}` must have two dimensions, with one row per query, got shape {tuple(tensor.shape)}"
            )
    if len(ranked_relevance) != len(qrels):
        raise UserError(f"`qrels` must have one row per ranking, {len(ranked_relevance)}, got {len(qrels)}")
    num_relevant = (qrels > 0).sum(dim=1)
    if (num_relevant == 0).any():
        row = int((num_relevant == 0).nonzero()[0])
        raise UserError(
            f"`qrels` must contain a positive gain for every query, got none in row {row}. Remove queries without "
            "relevant documents"
        )
    if (crowded := (ranked_relevance > 0).sum(dim=1) > num_relevant).any():
        raise UserError(
            f"`ranked_relevance` must not contain more relevant documents than `qrels`, got more in row "
            f"{int(crowded.nonzero()[0])}. Rank each document once, and take both arguments from the same query"
        )


def ndcg(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return the normalised discounted cumulative gain of the top K.

    .. math::
        \mathrm{nDCG@}K = \frac{\mathrm{DCG@}K(y)}{\mathrm{DCG@}K(y^{*})}, \qquad
        \mathrm{DCG@}K(y) = \sum_{r=1}^{K} \frac{y_r}{\log_2(1 + r)}

    where :math:`y` are the gains in rank order and :math:`y^{*}` all gains of the query in descending order.

    Source: Järvelin and Kekäläinen, "Cumulated Gain-Based Evaluation of IR Techniques", 2002, in the form of
    ``ndcg_cut_K`` of trec_eval: the gain is the relevance itself, not ``2 ** y - 1``.

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.
        top_k: Cutoff rank K.

    Returns:
        nDCG@K of each query, ``[num_queries]`` float64.

    Raises:
        UserError: If the arguments do not fit each other. See :func:`check_rankings`.

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
    r"""Return the reciprocal of the rank of the first relevant document.

    .. math:: \mathrm{RR} = \frac{1}{\min \{ r : y_r > 0 \}}, \qquad 0 \text{ if no relevant document is ranked}

    Source: Voorhees, "The TREC-8 Question Answering Track Report", 1999; ``recip_rank`` of trec_eval.

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.
        top_k: Cutoff rank. If None, the whole ranking is used.

    Returns:
        Reciprocal rank of each query, ``[num_queries]`` float64.

    Raises:
        UserError: If the arguments do not fit each other. See :func:`check_rankings`.

    Example:
        >>> reciprocal_rank(torch.tensor([[0, 0, 0, 2], [1, 0, 0, 1]]), torch.tensor([[2, 0], [1, 1]]))
        tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    relevant = (ranked_relevance[:, :top_k] > 0).to(torch.float64)
    rank = torch.arange(1, relevant.shape[1] + 1, dtype=torch.float64, device=relevant.device)
    # A column of zeros gives rankings of depth 0 a reciprocal rank of 0, because amax needs at least one column.
    return torch.nn.functional.pad(relevant / rank, (1, 0)).amax(dim=1)


def recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return the fraction of a query's relevant documents that are in the top K.

    .. math:: \mathrm{R@}K = \frac{|R \cap \mathrm{top}_K|}{|R|}

    Source: ``recall_K`` of trec_eval. R@K of "EA-GraphRAG" is different: it is a hit rate, 1 if any relevant document
    is found.

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.
        top_k: Cutoff rank K.

    Returns:
        R@K of each query, ``[num_queries]`` float64.

    Raises:
        UserError: If the arguments do not fit each other. See :func:`check_rankings`.

    Example:
        >>> recall(torch.tensor([[1, 0, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=3)
        tensor([0.5000], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return (ranked_relevance[:, :top_k] > 0).sum(dim=1).double() / (qrels > 0).sum(dim=1)


def capped_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return the number of relevant documents in the top K, divided by the largest possible number.

    .. math:: \mathrm{CR@}K = \frac{|R \cap \mathrm{top}_K|}{\min(K, |R|)}

    Source: Thakur et al., "BEIR: A Heterogeneous Benchmark for Zero-shot Evaluation of Information Retrieval Models",
    2021, where it is called capped recall.

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.
        top_k: Cutoff rank K.

    Returns:
        CR@K of each query, ``[num_queries]`` float64.

    Raises:
        UserError: If the arguments do not fit each other. See :func:`check_rankings`.

    Example:
        >>> capped_recall(torch.tensor([[1, 1, 1]]), torch.tensor([[1, 1, 1, 1]]), top_k=2)
        tensor([1.], dtype=torch.float64)
    """
    check_rankings(ranked_relevance, qrels, top_k)
    return (ranked_relevance[:, :top_k] > 0).sum(dim=1).double() / (qrels > 0).sum(dim=1).clamp(max=top_k)


def perfect_recall(ranked_relevance: Tensor, qrels: Tensor, *, top_k: int) -> Tensor:
    r"""Return 1 if all relevant documents of a query are in the top K, and 0 otherwise.

    .. math:: \mathrm{PR@}K = [\,R \subseteq \mathrm{top}_K\,]

    A query with more than K relevant documents always scores 0.

    Source: "GraphER: An Efficient Graph-Based Enrichment and Reranking Method for Retrieval-Augmented Generation",
    "Metrics".

    Args:
        ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
        qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.
        top_k: Cutoff rank K.

    Returns:
        PR@K of each query, ``[num_queries]`` float64.

    Raises:
        UserError: If the arguments do not fit each other. See :func:`check_rankings`.

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
_ALIASES = {"R_cap": "CR"}  # alternative names of other libraries
_NAME = re.compile(r"(?P<base>PR|R|CR|R_cap|nDCG|MRR)(@(?P<top_k>[1-9][0-9]*))?(?P<multi>/multi)?")


@dataclass(frozen=True)
class Measure:
    """Ranking measure with a cutoff. Calling it scores each query.

    Attributes:
        base: Name without cutoff, one of ``PR``, ``R``, ``CR``, ``nDCG`` and ``MRR``.
        top_k: Cutoff rank. None for the whole ranking, which only ``MRR`` allows.
        multi: Whether only queries with more than one relevant document are scored.

    Example:
        >>> parse_measure("PR@10/multi")
        Measure(base='PR', top_k=10, multi=True)
    """

    base: str
    top_k: int | None
    multi: bool = False

    @property
    def name(self) -> str:
        """Canonical name of the measure, such as ``PR@10/multi``."""
        cutoff = "" if self.top_k is None else f"@{self.top_k}"
        return f"{self.base}{cutoff}{'/multi' if self.multi else ''}"

    def __call__(self, ranked_relevance: Tensor, qrels: Tensor) -> Tensor:
        """Score each query.

        Args:
            ranked_relevance: Gains in rank order, ``[num_queries, depth]``.
            qrels: Gains of all relevant documents, ``[num_queries, max_relevant]``, padded with 0.

        Returns:
            Scores ``[num_queries]``, float64 in [0, 1]. With ``multi``, queries with one relevant document score NaN.

        Raises:
            UserError: If the arguments do not fit each other. See :func:`check_rankings`.
        """
        per_query = _FUNCTIONS[self.base](ranked_relevance, qrels, top_k=self.top_k)
        return per_query.masked_fill((qrels > 0).sum(dim=1) < 2, torch.nan) if self.multi else per_query


def parse_measure(name: str) -> Measure:
    """Return the measure with a given name.

    Args:
        name: One of ``PR@K``, ``R@K``, ``CR@K`` or ``R_cap@K`` (capped recall), ``nDCG@K``, ``MRR@K`` and ``MRR``. The
            suffix ``/multi`` restricts a measure to queries with more than one relevant document.

    Returns:
        The measure.

    Raises:
        UserError: If the name has another form.

    Example:
        >>> parse_measure("nDCG@10").name, parse_measure("R_cap@10").name
        ('nDCG@10', 'CR@10')
    """
    match = _NAME.fullmatch(name)
    if match is None or (match["top_k"] is None and match["base"] != "MRR"):
        forms = "PR@K, R@K, R_cap@K or CR@K (capped recall), nDCG@K, MRR@K or MRR"
        raise UserError(f"`name` must be {forms}, with K at least 1 and optionally followed by /multi, got {name!r}")
    base = _ALIASES.get(match["base"], match["base"])
    return Measure(base, int(match["top_k"]) if match["top_k"] else None, match["multi"] is not None)
