"""FastInsight's Figure 5: R@10 of the questions by how near the relevant nodes the vector search begins."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval
from graphrerank.evaluation.tables import markdown_table
from graphrerank.files import save_figure

NAMES = ("Q1", "Q2", "Q3", "Q4")


@dataclass(frozen=True)
class Quartiles:
    """Questions in four groups, and a measure of each pipeline in them; a group may be empty."""

    sizes: Sequence[int]  # questions of each group
    ranges: Sequence[tuple[float, float]]  # least and greatest Topological Recall in each; NaN where it is empty
    means: Mapping[str, Sequence[float]]  # pipeline -> mean of each group; NaN where it is empty
    intervals: Mapping[str, Sequence[tuple[float, float]]]  # their 95% bootstrap intervals over questions

    def to_json(self) -> dict[str, Any]:
        """Return the entry of ``metrics.json``; null where a group is empty."""
        return {
            "questions": list(self.sizes),
            "topological_recall": [_plain(ends) for ends in self.ranges],
            "pipelines": {
                name: {"mean": _plain(self.means[name]), "interval": [_plain(ends) for ends in self.intervals[name]]}
                for name in self.means
            },
        }


def topological_quartiles(start: Tensor, scores: Mapping[str, Tensor]) -> Quartiles:
    """Group questions by the quartiles of ``start``, ``[Q]``, and average each pipeline's ``[Q]`` scores.

    Questions of one Topological Recall are in one group, the lowest whose quartile it does not exceed, so that groups
    may differ in size where many are equal.

    Source: FastInsight, section 5.3.1 and Figure 5, which does not say whose Topological Recall it is. Ours is that of
    the vector search's first nodes, from which all pipelines begin: the groups are the same for all.

    Example:
        >>> start = torch.tensor([0.0, 0.4, 0.6, 1.0, 1.0])
        >>> topological_quartiles(start, {"re2": start}).sizes
        [2, 1, 2, 0]
    """
    bounds = torch.quantile(start, torch.tensor([0.25, 0.5, 0.75], dtype=start.dtype))
    group = torch.bucketize(start, bounds)
    rows = [group == number for number in range(len(NAMES))]
    return Quartiles(
        sizes=[int(inside.sum()) for inside in rows],
        ranges=[
            (float(start[inside].min()), float(start[inside].max())) if bool(inside.any()) else (torch.nan, torch.nan)
            for inside in rows
        ],
        means={name: [float(values[inside].nanmean()) for inside in rows] for name, values in scores.items()},
        intervals={name: [_interval(values[inside]) for inside in rows] for name, values in scores.items()},
    )


def quartiles_table(quartiles: Quartiles) -> str:
    """Lay out in Markdown, in percent."""
    header = ["pipeline"] + [
        f"{name}: TR {100 * low:.0f} to {100 * high:.0f}, {size} questions" if size else f"{name}: none"
        for name, size, (low, high) in zip(NAMES, quartiles.sizes, quartiles.ranges, strict=True)
    ]
    rows = [
        [name, *(_cell(mean, ends) for mean, ends in zip(means, quartiles.intervals[name], strict=True))]
        for name, means in quartiles.means.items()
    ]
    return markdown_table(header, rows)


def draw_quartiles(path: Path, quartiles: Quartiles, *, title: str) -> None:
    """Draw a bar for each pipeline and group, with its interval, as PNG."""
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    shown = [number for number, size in enumerate(quartiles.sizes) if size]
    width = 0.8 / max(1, len(quartiles.means))
    for place, (name, means) in enumerate(quartiles.means.items()):
        heights = [100 * means[number] for number in shown]
        ends = [quartiles.intervals[name][number] for number in shown]
        below = [height - 100 * low for height, (low, _) in zip(heights, ends, strict=True)]
        above = [100 * high - height for height, (_, high) in zip(heights, ends, strict=True)]
        at = [x + (place - (len(quartiles.means) - 1) / 2) * width for x in range(len(shown))]
        axes.bar(at, heights, width, label=name, yerr=[below, above], capsize=2)
    axes.set_xticks(range(len(shown)), [f"{NAMES[number]} ({quartiles.sizes[number]})" for number in shown])
    axes.set(
        title=title,
        xlabel="quartile of Topological Recall of the vector search (questions)",
        ylabel="R@10, capped (%), 95% interval",
    )
    axes.grid(axis="y", alpha=0.3)
    axes.legend(loc="lower right")
    save_figure(path, figure)


def _interval(values: Tensor) -> tuple[float, float]:
    low, high = bootstrap_interval(values).tolist() if len(values) else (torch.nan, torch.nan)
    return low, high


def _cell(mean: float, ends: tuple[float, float]) -> str:
    return "-" if mean != mean else f"{100 * mean:.1f} ({100 * ends[0]:.1f} to {100 * ends[1]:.1f})"


def _plain(numbers: Sequence[float]) -> list[float | None]:
    return [None if number != number else number for number in numbers]
