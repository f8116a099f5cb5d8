"""FastInsight's findings as curves: quality against time, budget, smoothing and structure weight, and its Table 6."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.evaluation.measuring import MISSED, TOPOLOGICAL_RECALL
from graphrerank.evaluation.study import SystemStudy
from graphrerank.evaluation.tables import markdown_table, number_cell
from graphrerank.files import save_figure
from graphrerank_papers.fastinsight.quartiles import Quartiles, quartiles_table

QUALITY = "CR@10"  # FastInsight's R@10 is capped (section 4.3.1)
START = "R@10"  # of the vector search that pipelines begin with


@dataclass(frozen=True)
class Curves:
    """Results on one split of one data set."""

    dataset: str  # name of the data set
    split: str
    num_queries: int  # queries judged
    budgets: Mapping[str, Mapping[int, SystemStudy]]  # pipeline -> budget -> result
    # name of a setting of FastInsight -> its value -> result, at the largest budget
    settings: Mapping[str, Mapping[float, SystemStudy]]
    defaults: Mapping[str, float]  # the value of each setting that the paper chose
    correlations: Mapping[str, tuple[float, float]]  # pipeline -> result of `gain_correlations`
    quartiles: Quartiles  # of R@10, at the largest budget


def gain_correlations(start: SystemStudy, end: SystemStudy, *, recall: str) -> tuple[float, float]:
    r"""Correlate a pipeline's gain over its vector search with that search's Recall and with its MissTR.

    .. math:: \Delta R = R_{total} - R@10_{vs}

    Source: FastInsight, Table 6, where the kind of correlation is not said; ours is Pearson's. ``start`` is the first
    ten nodes of the vector search, ``end`` the pipeline with all its nodes, and ``recall`` the measure over these. NaN
    where one is constant.
    """
    gain = end.values[recall] - start.values[START]
    return pearson(gain, start.values[START]), pearson(gain, start.values[MISSED])


def pearson(first: Tensor, second: Tensor) -> float:
    """Correlate two vectors ``[Q]``; NaN where one is constant.

    Example:
        >>> round(pearson(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 3.0, 2.0])), 3)
        0.5
    """
    both = torch.stack([first, second]).double()
    if bool((both == both[:, :1]).all(1).any()):
        return float("nan")
    return float(torch.corrcoef(both)[0, 1])


def curves_json(curves: Curves) -> dict[str, object]:
    """Return a data set's entry of ``metrics.json``."""
    return {
        "split": curves.split,
        "queries": curves.num_queries,
        "budgets": {
            name: {str(budget): _point_json(result) for budget, result in points.items()}
            for name, points in curves.budgets.items()
        },
        "settings": {
            name: {str(value): _point_json(result) for value, result in points.items()}
            for name, points in curves.settings.items()
        },
        "correlations": {
            name: {"Recall": None if recall != recall else recall, "MissTR": None if missed != missed else missed}
            for name, (recall, missed) in curves.correlations.items()
        },
        "quartiles": curves.quartiles.to_json(),
    }


def total_ms(result: SystemStudy) -> float:
    """Milliseconds per query of all stages of a pipeline, many queries at once."""
    assert result.cost is not None
    return sum(result.cost.batch_ms.values())


def render_curves(all_curves: Sequence[Curves], *, plots: Sequence[str]) -> str:
    """Write the report in Markdown: a section per data set, ``plots`` beside it."""
    parts = ["# FastInsight's curves"]
    for curves, plot in zip(all_curves, plots, strict=True):
        parts.append(f"## {curves.dataset} {curves.split}, {curves.num_queries:,} queries")
        parts.append(f"![curves]({plot})")
        parts.append(
            "R@10 is capped recall. Milliseconds per query, many at once: of the cross-encoder (its pairs times the "
            "time of a pair, measured without the cache) and of everything else."
        )
        budgets = sorted({budget for points in curves.budgets.values() for budget in points})
        for title, measure in (("R@10", QUALITY), ("Topological Recall", TOPOLOGICAL_RECALL)):
            parts.append(f"### {title} against the budget")
            rows = [
                [name, *(f"{100 * points[b].means[measure]:.1f}" if b in points else "-" for b in budgets)]
                for name, points in curves.budgets.items()
            ]
            parts.append(markdown_table(["pipeline", *map(str, budgets)], rows))
        parts.append("### Milliseconds per query")
        rows = [
            [name, *(f"{total_ms(points[b]):.0f}" if b in points else "-" for b in budgets)]
            for name, points in curves.budgets.items()
        ]
        parts.append(markdown_table(["pipeline", *map(str, budgets)], rows))
        for setting, varied in curves.settings.items():
            parts.append(f"### R@10 of FastInsight against {setting.replace('_', ' ')}")
            numbers = [f"{100 * result.means[QUALITY]:.1f}" for result in varied.values()]
            parts.append(markdown_table([setting, *(f"{value:g}" for value in varied)], [["R@10", *numbers]]))
        parts.append("### R@10 by quartile of Topological Recall (the paper's Figure 5)")
        parts.append(
            f"![quartiles]({Path(plot).stem}_quartiles.png)\n\nTR: of the vector search's first ten nodes, percent. "
            "Questions of one TR are in one group. In brackets 95% intervals over questions."
        )
        parts.append(quartiles_table(curves.quartiles))
        parts.append("### Correlation with the recall gained (the paper's Table 6)")
        rows = [[name, *(number_cell(value).text for value in pair)] for name, pair in curves.correlations.items()]
        parts.append(markdown_table(["pipeline", "Recall", "MissTR"], rows))
    return "\n\n".join(parts) + "\n"


def draw_curves(path: Path, curves: Curves) -> None:
    """Draw the four panels of one data set as PNG; the paper's defaults are marked."""
    from matplotlib.figure import Figure  # slow to import, and the object interface needs no display

    figure = Figure(figsize=(12, 8), layout="constrained")
    figure.suptitle(f"{curves.dataset} {curves.split}, {curves.num_queries:,} queries")
    panels = figure.subplots(2, 2)
    time, budget = panels[0]
    for name, points in curves.budgets.items():
        quality = [100 * result.means[QUALITY] for result in points.values()]
        ends = [result.intervals[QUALITY] for result in points.values()]
        seconds = [total_ms(result) / 1000 for result in points.values()]
        (line,) = time.plot(seconds, quality, marker="o", label=name)
        time.fill_between(
            seconds, [100 * low for low, _ in ends], [100 * high for _, high in ends], color=line.get_color(), alpha=0.1
        )
        recall = [100 * result.means[TOPOLOGICAL_RECALL] for result in points.values()]
        budget.plot(list(points), recall, marker="o", label=name, color=line.get_color())
    time.set(xlabel="seconds per query", ylabel="R@10, capped (%), 95% interval", title="quality against time")
    budget.set(
        xlabel="budget: passages read per query", ylabel="Topological Recall (%)", title="nearness to what is sought"
    )
    for axes, (setting, varied) in zip(panels[1], curves.settings.items(), strict=False):
        values, name = list(varied), setting.replace("_", " ")
        quality = [100 * result.means[QUALITY] for result in varied.values()]
        axes.plot(range(len(values)), quality, marker="o", color="C2", label="fastinsight")
        axes.set_xticks(range(len(values)), [f"{value:g}" for value in values])
        if curves.defaults[setting] in varied:
            axes.axvline(values.index(curves.defaults[setting]), color="C1", lw=6, alpha=0.3, label="the paper's")
        axes.set(xlabel=name, ylabel="R@10, capped (%)", title=f"FastInsight's {name}")
    for axes in panels.flat:
        if not axes.lines:  # a setting that is not varied
            axes.set_visible(False)
            continue
        axes.grid(alpha=0.3)
        axes.legend()
    save_figure(path, figure)


def _point_json(result: SystemStudy) -> dict[str, object]:
    cost = result.cost
    assert cost is not None
    ends = {measure: list(ends) for measure, ends in result.intervals.items()}
    times = {"encodings": cost.encodings or 0.0, "ms": dict(cost.batch_ms), "overhead": cost.overhead}
    return {**result.means, "interval": ends, **times}
