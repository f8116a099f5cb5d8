"""Measures by the names they are printed with."""

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphrerank.metrics.ranking import capped_recall, ndcg, perfect_recall, recall, reciprocal_rank

_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "PR": perfect_recall,
    "R": recall,
    "CR": capped_recall,
    "nDCG": ndcg,
    "MRR": reciprocal_rank,
}
_ALIASES = {"R_cap": "CR"}  # as others write it
_NAME = re.compile(r"(?P<base>PR|R|CR|R_cap|nDCG|MRR)(@(?P<top_k>[1-9][0-9]*))?(?P<multi>/multi)?")
_KNOWN_FORMS = (
    "PR@K, R@K, R_cap@K or CR@K (capped recall), nDCG@K, MRR@K or MRR, K a positive integer, each also as NAME/multi"
)


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
        """Score each query.

        Args:
            ranked_relevance: ``[num_queries, depth]``, gain of the document at each rank; 0 = not relevant, or padding.
            qrels: ``[num_queries, max_relevant]``, all positive gains of each query in any order, padded with 0.

        Returns:
            ``[num_queries]``, float64, in [0, 1]; NaN = left out by ``/multi``.
        """
        per_query = _FUNCTIONS[self.base](ranked_relevance, qrels, top_k=self.top_k)
        return per_query.masked_fill((qrels > 0).sum(dim=1) < 2, torch.nan) if self.multi else per_query

    def mean(self, ranked_relevance: Tensor, qrels: Tensor) -> float:
        """Average over the queries that count, in [0, 1]; NaN if no query counts. Arguments as in :meth:`__call__`.

        Example:
            >>> parse_measure("PR@2").mean(torch.tensor([[1, 1], [0, 0]]), torch.tensor([[1, 1], [1, 0]]))
            0.5
        """
        return float(self(ranked_relevance, qrels).nanmean())


def parse_measure(name: str) -> Measure:
    """Read a measure's name.

    Args:
        name: ``PR@K``, ``R@K``, ``R_cap@K`` or ``CR@K`` (capped recall), ``nDCG@K``, ``MRR@K`` or ``MRR``, each also
            with ``/multi`` (only queries with more than one relevant document count).

    Returns:
        The measure; its ``name`` is the same for both ways to write capped recall.

    Raises:
        ValueError: If ``name`` has none of these forms.

    Example:
        >>> parse_measure("nDCG@10").name, parse_measure("R_cap@10").name
        ('nDCG@10', 'CR@10')
    """
    match = _NAME.fullmatch(name)
    if match is None or (match["top_k"] is None and match["base"] != "MRR"):
        raise ValueError(f"`name` must be {_KNOWN_FORMS}; got {name!r}")
    base = _ALIASES.get(match["base"], match["base"])
    return Measure(base, int(match["top_k"]) if match["top_k"] else None, match["multi"] is not None)
