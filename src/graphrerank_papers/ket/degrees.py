"""KET-RAG's Figure 2: how many chunks have how many neighbours in the graph of nearest chunks."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from scipy.optimize import minimize_scalar
from scipy.special import zeta
from torch import Tensor

from graphrerank.evaluation.tables import markdown_table
from graphrerank.files import save_figure

CENTRAL = 0.01  # share of the chunks whose share of the edges is told


@dataclass(frozen=True)
class Degrees:
    """Degrees of the chunks of one graph."""

    chunk_tokens: int  # length of the chunks
    counts: Mapping[int, int]  # degree -> chunks that have it, ascending
    # share of the ends of edges, 0 without any, that lie at the :data:`CENTRAL` share of the chunks with most
    central_share: float
    exponent: float  # of the likeliest power law of the degrees from the least one on; NaN where all are equal
    power_law_gain: float  # log-likelihood of that power law minus that of the likeliest geometric distribution, nats

    @property
    def num_chunks(self) -> int:
        """Number of chunks."""
        return sum(self.counts.values())

    @property
    def mean(self) -> float:
        """Mean degree; NaN without chunks."""
        ends = sum(degree * count for degree, count in self.counts.items())
        return ends / self.num_chunks if self.num_chunks else torch.nan


def count_degrees(edges: Tensor, num_chunks: int, *, chunk_tokens: int) -> Degrees:
    """Count the neighbours of each chunk over undirected ``edges``, ``[E, 2]``.

    Example:
        >>> dict(count_degrees(torch.tensor([[0, 1], [0, 2]]), 4, chunk_tokens=150).counts)
        {0: 1, 1: 2, 2: 1}
    """
    degree = torch.bincount(edges.flatten(), minlength=num_chunks)
    values, counts = torch.unique(degree, return_counts=True)
    most = degree.sort(descending=True).values[: max(1, round(CENTRAL * num_chunks))]
    share = float(most.sum() / degree.sum()) if len(edges) else 0.0
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return Degrees(chunk_tokens, found, share, *fit_power_law({d: count for d, count in found.items() if d}))


def fit_power_law(counts: Mapping[int, int]) -> tuple[float, float]:
    r"""Fit a power law to degrees above 0, and compare it with a geometric distribution, whose tail is exponential.

    .. math:: p(k) = \frac{k^{-\gamma}}{\zeta(\gamma, k_{min})}, \qquad q(k) = (1 - r) r^{k - k_{min}}

    both from the least degree :math:`k_{min}` on, by maximum likelihood. Source: Clauset et al., *Power-Law
    Distributions in Empirical Data*, 2009, section 3.1. *Where we differ:* the least degree is not searched for.

    Returns:
        The exponent, and the log-likelihood of the power law minus that of the geometric distribution: negative where
        the latter fits better. NaN where the degrees are all equal, or there is none.
    """
    if len(counts) < 2:
        return torch.nan, torch.nan
    least, number = min(counts), sum(counts.values())
    logs = sum(count * math.log(degree) for degree, count in counts.items())
    fit = minimize_scalar(
        lambda exponent: number * math.log(zeta(exponent, least)) + exponent * logs, bounds=(1.01, 50), method="bounded"
    )
    beyond = sum(count * (degree - least) for degree, count in counts.items())
    ratio = beyond / (beyond + number)
    geometric = number * math.log(1 - ratio) + beyond * math.log(ratio)
    return float(fit.x), -float(fit.fun) - geometric


def degrees_table(all_degrees: Sequence[Degrees]) -> str:
    """Lay out in Markdown, a row per graph."""
    header = ["tokens of a chunk", "chunks", "mean degree", "greatest", f"ends of edges at the {CENTRAL:.0%} with most"]
    header += ["exponent of a power law", "its log-likelihood above a geometric distribution's"]
    rows = [
        [
            f"{degrees.chunk_tokens:,}",
            f"{degrees.num_chunks:,}",
            f"{degrees.mean:.2f}",
            f"{max(degrees.counts, default=0):,}",
            f"{100 * degrees.central_share:.1f}%",
            *("-" if value != value else f"{value:,.1f}" for value in (degrees.exponent, degrees.power_law_gain)),
        ]
        for degrees in all_degrees
    ]
    return markdown_table(header, rows)


def draw_degrees(path: Path, all_degrees: Sequence[Degrees]) -> None:
    """Draw the number of chunks of each degree as PNG, on logarithmic axes; chunks without a neighbour are left out."""
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for degrees, marker in zip(all_degrees, "ox+*sd" * len(all_degrees), strict=False):
        points = [(degree, count) for degree, count in degrees.counts.items() if degree]
        label = f"chunks of {degrees.chunk_tokens:,} tokens"
        axes.plot(*zip(*points, strict=True), marker=marker, ls="", label=label)
    axes.set(xscale="log", yscale="log", xlabel="degree", ylabel="chunks")
    axes.grid(alpha=0.3)
    axes.legend()
    save_figure(path, figure)
