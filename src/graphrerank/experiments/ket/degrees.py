"""KET-RAG's Figure 2: how many chunks have how many neighbours in the graph of nearest chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
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
    return Degrees(chunk_tokens, dict(zip(values.tolist(), counts.tolist(), strict=True)), share)


def degrees_table(all_degrees: Sequence[Degrees]) -> str:
    """Lay out in Markdown, a row per graph."""
    header = ["tokens of a chunk", "chunks", "mean degree", "greatest", f"ends of edges at the {CENTRAL:.0%} with most"]
    rows = [
        [
            f"{degrees.chunk_tokens:,}",
            f"{degrees.num_chunks:,}",
            f"{degrees.mean:.2f}",
            f"{max(degrees.counts, default=0):,}",
            f"{100 * degrees.central_share:.1f}%",
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
