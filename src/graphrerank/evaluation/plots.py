"""The plots of a study as PNG files."""

import re
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphrerank.evaluation.findings import Reliability
from graphrerank.evaluation.pareto import FASTEST, ParetoPoint, pareto_points
from graphrerank.evaluation.reliability import wilson_interval
from graphrerank.evaluation.study import Study
from graphrerank.evaluation.tables import row_name
from graphrerank.files import atomic_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ACCENT, SOFT = "#0064a4", "#57606a"  # as in the report's style sheet


def write_plots(folder: Path, study: Study) -> list[Path]:
    """Draw each data set's quality against time, and the reliability of each calibrated system.

    Returns:
        The files: ``<dataset>.pareto.<measure>.png`` and ``<dataset>.reliability.<system>.png``.
    """
    written = []
    for name, dataset in study.datasets.items():
        for measure in dataset.tested:
            if points := pareto_points(dataset, measure):
                title = f"{name} {dataset.split}: {measure} against time"
                written.append(
                    _save(folder, [name, "pareto", measure], draw_pareto(points, measure=measure, title=title))
                )
        for found in dataset.reliability:
            figure = draw_reliability(found, title=f"{name} {dataset.split}")
            written.append(_save(folder, [name, "reliability", found.system], figure))
    return written


def draw_pareto(points: Sequence[ParetoPoint], *, measure: str, title: str) -> "Figure":
    """Draw quality against the median time, with 95% intervals, lines to the 95th percentile, and the front.

    Args:
        points: At least one; dominated ones are hollow.
        measure: Name of the measure.
        title: Heading.
    """
    figure, axes = _figure(title)
    times = sorted(max(FASTEST, point.ms) for point in points)
    for point in points:
        color = ACCENT if point.primary else SOFT if point.dominated else "black"
        x, y = max(FASTEST, point.ms), 100 * point.quality
        axes.plot([x, max(x, point.slow_ms)], [y, y], color=SOFT, lw=1, zorder=1)
        low, high = (100 * end for end in point.interval)
        if not isnan(low):
            axes.plot([x, x], [low, high], color=SOFT, lw=1, zorder=1)
        fill = "white" if point.dominated else color
        axes.plot([x], [y], marker="o", ls="", color=color, markerfacecolor=fill, zorder=3)
        label = f"{point.name} (dominated)" if point.dominated else point.name
        right = x * x <= times[0] * times[-1]  # of the middle of the axis there is room on the left
        side: dict[str, Any] = {"xytext": (6 if right else -6, 5), "ha": "left" if right else "right"}
        axes.annotate(label, (x, y), textcoords="offset points", fontsize=9, zorder=4, **side)
    front = sorted((max(FASTEST, p.ms), 100 * p.quality) for p in points if not p.dominated)
    axes.step(*zip(*front, strict=True), where="post", color=ACCENT, alpha=0.5, zorder=2)
    axes.set(xscale="log", xlabel="milliseconds per query: median, and a line to the 95th percentile")
    axes.set_ylabel(f"{measure}, percent, with 95% intervals")
    axes.margins(x=0.15, y=0.1)
    return figure


def draw_reliability(found: Reliability, *, title: str) -> "Figure":
    """Draw the share of relevant candidates against the probability that they were given, above how many they are."""
    figure, axes = _figure(f"{title}: {row_name(found.system)}, {found.method}, ECE {found.ece:.4f}")
    axes.plot([0, 1], [0, 1], ls="--", color=SOFT, lw=1)
    bins = [one for one in zip(found.counts, found.probabilities, found.shares, strict=True) if one[0]]
    for count, probability, share in bins:
        axes.plot([probability] * 2, wilson_interval(share, count), color=SOFT, lw=1)
        axes.annotate(f"{count:,}", (probability, share), xytext=(5, -9), textcoords="offset points", fontsize=8)
    axes.plot([p for _, p, _ in bins], [share for *_, share in bins], marker="o", color=ACCENT)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability given; numbers: candidates in the bin")
    axes.set_ylabel("share relevant, with 95% intervals")
    return figure


def _figure(title: str) -> tuple["Figure", Any]:
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(folder: Path, names: Sequence[str], figure: "Figure") -> Path:
    path = folder / (".".join(re.sub(r"[^\w.@ -]", "-", name) for name in names) + ".png")
    with atomic_path(path) as temporary:
        figure.savefig(temporary, format="png", dpi=130)
    return path
