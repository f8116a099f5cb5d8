"""Draw the plots of an evaluation with matplotlib, as SVG for ``report.html`` and as PNG files."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from html import escape
from io import BytesIO
from itertools import pairwise
from math import isnan
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from graphrerank.evaluation.latency import TOTAL
from graphrerank.evaluation.records import DatasetResult, Reliability
from graphrerank.evaluation.tables import Cell, points_cell, row_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

INK, SOFT, FAINT, PAPER, ACCENT, WARM = "#1b1f24", "#57606a", "#eceff2", "#ffffff", "#0064a4", "#b34700"
#: Variable of `page.css` for each colour.
VARIABLES = {INK: "ink", SOFT: "soft", FAINT: "faint", PAPER: "card", ACCENT: "accent", WARM: "warm"}
WIDTH = 5.6  # width of a plot in inches, at 72 units of the SVG per inch
TITLE, NAME = 70, 22  # maximum line length of titles and of system names, in characters
CACHED_DATASETS = 16  # number of data sets whose plots are cached: the report is rewritten after each data set
MIN_BIN = 10  # minimum number of candidates in a bin of a reliability diagram; smaller bins are merged
FASTEST = 1e-3  # smallest time in milliseconds on a logarithmic axis
OFFSETS = [(8 * side, up) for up in (10, -10, 0, 22, -22, 34, -34) for side in (1, -1)]  # label offsets, in points
OVER_TEXT = 100  # cost of a label over a point or another label, in units of a label over a line
SAMPLES = 40  # number of samples of a line
STYLE = {
    "font.size": 12,
    "text.parse_math": False,  # names may contain dollar signs
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}


#: Two ends of a line in data coordinates, which labels avoid.
Segment = tuple[tuple[float, float], tuple[float, float]]


class DifferenceRow(NamedTuple):
    """Row of a plot of differences to a baseline.

    Attributes:
        name: Name of the baseline.
        cell: Difference as text and number.
        interval: Confidence interval of the difference, as fractions.
        color: Colour of the point.
    """

    name: str
    cell: Cell
    interval: tuple[float, float]
    color: str


class Bin(NamedTuple):
    """Bin of a reliability diagram.

    Attributes:
        num_candidates: Number of candidates.
        probability: Mean predicted probability.
        share: Fraction of relevant candidates.
    """

    num_candidates: int
    probability: float
    share: float


@dataclass(frozen=True)
class Picture:
    """Description of a plot.

    Attributes:
        name: Name of the file, such as ``attack.pareto.PR@10``.
        caption: Caption of the plot.
        draw: Function that draws the plot on axes of matplotlib.
        height: Height in inches.
    """

    name: str
    caption: str
    draw: Callable[["Axes"], None]
    height: float = 4.2


class DrawnPlot(NamedTuple):
    """Plot in the formats of a report.

    Attributes:
        picture: Description of the plot.
        svg: SVG element for an HTML page.
        png: Content of the PNG file.
    """

    picture: Picture
    svg: str
    png: bytes


class LabelledPoint(NamedTuple):
    """Point of a plot with its label.

    Attributes:
        x: First coordinate, in data coordinates.
        y: Second coordinate, in data coordinates.
        text: Label.
    """

    x: float
    y: float
    text: str


@lru_cache(maxsize=CACHED_DATASETS)
def drawn_plots(dataset: DatasetResult) -> Sequence[DrawnPlot]:
    """Draw all plots of a data set.

    Args:
        dataset: Results of the data set.

    Returns:
        Plots in the order of :func:`dataset_pictures`.
    """
    title = f"{dataset.name} {dataset.split}"
    return [
        DrawnPlot(picture, svg(picture), _render(picture, "png", f"{title}: {picture.caption}"))
        for picture in dataset_pictures(dataset)
    ]


def dataset_pictures(dataset: DatasetResult) -> Iterator[Picture]:
    """Yield the plots of a data set: differences and cost per tested measure, then calibration.

    Args:
        dataset: Results of the data set.

    Yields:
        Plots that are not yet drawn.
    """
    for measure in dataset.tested:
        rows: list[DifferenceRow] = []
        for test in dataset.tests:
            if test.measure == measure and not isnan(test.difference):
                cell = points_cell(test.difference, test.interval)
                rows.append(DifferenceRow(row_name(test.baseline), cell, test.interval, _color(test.interval)))
        if rows:
            caption = f"Gain in {measure}; blue, a gain, and orange, a loss: the interval excludes 0"
            draw = partial(
                _draw_rows, rows=rows, label=f"{row_name(dataset.primary)} minus the other, points of {measure}"
            )
            num_lines = max(fill(row.name, NAME).count("\n") + 1 for row in rows)
            height = 0.8 + 0.3 * len(rows) * num_lines
            yield Picture(f"{dataset.name}.differences.{measure}", caption, draw, height)
    for measure in dataset.tested:
        timed = {
            name: (system.cost.ms[TOTAL]["p50"], system.means[measure])
            for name, system in dataset.systems.items()
            if system.cost is not None and TOTAL in system.cost.ms and not isnan(system.means[measure])
        }
        if timed:
            caption = f"{measure} against time; the line is the Pareto front, hollow points are dominated"
            draw = partial(_draw_pareto, dataset=dataset, timed=timed, measure=measure)
            yield Picture(f"{dataset.name}.pareto.{measure}", caption, draw)
    for entry in dataset.reliability:
        caption = f"{row_name(entry.system)}: a score as a probability ({entry.method}), ECE {entry.ece:.4f}"
        yield Picture(f"{dataset.name}.reliability.{entry.system}", caption, partial(_draw_reliability, entry=entry))


def _color(interval: tuple[float, float]) -> str:
    """Return the colour of a gain, of a loss, or of a difference whose interval includes 0."""
    low, high = interval
    if low > 0:
        return ACCENT
    return WARM if high < 0 else INK


def svg(picture: Picture) -> str:
    """Draw a plot as an SVG element of an HTML page. Its colours are variables of the page's style sheet.

    Args:
        picture: Plot to draw.

    Returns:
        Markup of the element.
    """
    text = _render(picture, "svg").decode()
    box = re.search(r'viewBox="([^"]*)"', text)
    assert box is not None
    body = text[text.index(">", box.start()) + 1 :]
    body = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<defs>\s*</defs>", "", body, flags=re.DOTALL)
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub("|".join(VARIABLES), lambda color: f"var(--{VARIABLES[color[0]]})", body)
    body = re.sub(r' transform="rotate\(-0 [^"]*"|; font-family: [^;"]*', "", body)
    body = re.sub(r"\s*\n\s*", " ", body)
    return f'<svg viewBox="{box[1]}" role="img" aria-label="{escape(picture.caption)}" class="plot">{body}'


def _draw_rows(axes: "Axes", *, rows: Sequence[DifferenceRow], label: str) -> None:
    """Draw one row per system with its name, the difference and its interval in percent. A line marks 0."""
    for y, (_, cell, interval, color) in enumerate(rows):
        axes.plot([100 * end for end in interval], [y, y], color=SOFT)
        _point(axes, 100 * (cell.value or 0.0), y, color)
        right: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
        axes.annotate(cell.text, (1, y), xytext=(8, 0), va="center", annotation_clip=False, **right)
    axes.set_yticks(range(len(rows)), [fill(row.name, NAME) for row in rows], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set(ylim=(len(rows) - 0.5, -0.5), xlabel=label)
    axes.axvline(0, color=SOFT, ls="--", lw=1, zorder=1)


def _draw_pareto(axes: "Axes", *, dataset: DatasetResult, timed: dict[str, tuple[float, float]], measure: str) -> None:
    """Draw quality against median time, with 95% intervals, lines to the 95th percentile and the Pareto front."""
    from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, NullLocator

    points: list[LabelledPoint] = []
    front: list[tuple[float, float]] = []
    lines: list[Segment] = []
    for name, (ms, mean) in timed.items():
        others = [other for other in timed.values() if other != (ms, mean)]
        dominated = any(other_ms <= ms and other_mean >= mean for other_ms, other_mean in others)
        system = dataset.systems[name]
        assert system.cost is not None
        interval = system.intervals[measure]
        x = max(FASTEST, ms)
        y = 100 * mean
        slow_x = max(x, system.cost.ms[TOTAL]["p95"])
        lines.append(((x, y), (slow_x, y)))
        axes.plot([x, slow_x], [y, y], color=SOFT, lw=1, zorder=1)
        if not isnan(interval[0]):
            ends = [100 * end for end in interval]
            lines.append(((x, ends[0]), (x, ends[1])))
            axes.plot([x, x], ends, color=SOFT, lw=1, zorder=1)
        _point(axes, x, y, ACCENT if name == dataset.primary else INK, hollow=dominated)
        points.append(LabelledPoint(x, y, row_name(name)))
        if not dominated:
            front.append((x, y))
    steps = sorted(front)
    axes.step(*zip(*steps, strict=True), where="post", color=ACCENT, alpha=0.5, zorder=2)
    for (x, y), (next_x, next_y) in pairwise(steps):
        lines += [((x, y), (next_x, y)), ((next_x, y), (next_x, next_y))]
    axes.set(xscale="log", xlabel="ms per query: median, line to the 95th percentile")
    axes.set_ylabel(f"{measure}, percent, with 95% intervals")
    axes.margins(x=0.12, y=0.12)
    low, high = axes.get_xlim()
    if high > 1e4 * low:
        digits: tuple[int, ...] = (1,)
    elif high > 100 * low:
        digits = (1, 3)
    else:
        digits = (1, 2, 5)
    axes.xaxis.set_major_locator(LogLocator(subs=digits) if high > 10 * low else AutoLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:,.6g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    _label(axes, points, lines)


def _draw_reliability(axes: "Axes", *, entry: Reliability) -> None:
    """Draw the fraction of relevant candidates against the predicted probability, with the counts of the bins."""
    from scipy.stats import binomtest

    axes.plot([0, 1], [0, 1], ls="--", color=SOFT, lw=1)
    bins = merged_bins(entry)
    lines: list[Segment] = []
    axes.plot([entry.probability for entry in bins], [entry.share for entry in bins], color=ACCENT, alpha=0.6)
    for count, probability, share in bins:
        ends = binomtest(round(share * count), count).proportion_ci(method="wilson")
        lines.append(((probability, ends.low), (probability, ends.high)))
        axes.plot([probability] * 2, [ends.low, ends.high], color=SOFT)
        _point(axes, probability, share, ACCENT)
    for first, second in pairwise(bins):
        lines.append(((first.probability, first.share), (second.probability, second.share)))
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="probability given; numbers: candidates in the bin")
    axes.set_ylabel("share relevant, with 95% intervals")
    _label(axes, [LabelledPoint(probability, share, f"{count:,}") for count, probability, share in bins], lines)


def merged_bins(entry: Reliability, *, minimum: int = MIN_BIN) -> list[Bin]:
    """Merge neighbouring bins until each of them has enough candidates for a meaningful share.

    Args:
        entry: Calibration of a system in bins.
        minimum: Minimum number of candidates in a bin. With fewer candidates in total, there is one bin.

    Returns:
        Bins, by probability. Empty bins are left out.
    """
    bins: list[Bin] = []
    for count, probability, share in zip(entry.counts, entry.probabilities, entry.shares, strict=True):
        if not count:
            continue
        following = Bin(count, probability, share)
        if bins and bins[-1].num_candidates < minimum:
            bins[-1] = _joined_bins(bins[-1], following)
        else:
            bins.append(following)
    if len(bins) > 1 and bins[-1].num_candidates < minimum:
        last = bins.pop()
        bins[-1] = _joined_bins(bins[-1], last)
    return bins


def _joined_bins(first: Bin, second: Bin) -> Bin:
    total = first.num_candidates + second.num_candidates
    probability = (first.num_candidates * first.probability + second.num_candidates * second.probability) / total
    share = (first.num_candidates * first.share + second.num_candidates * second.share) / total
    return Bin(total, probability, share)


def _point(axes: "Axes", x: float, y: float, color: str, *, hollow: bool = False) -> None:
    inside, edge = (PAPER, color) if hollow else (color, PAPER)
    axes.plot([x], [y], marker="o", ms=8, ls="", color=inside, markeredgecolor=edge, zorder=3)


def _label(axes: "Axes", points: Sequence[LabelledPoint], lines: Sequence[Segment] = ()) -> None:
    """Label each point at the offset where the label overlaps the fewest points, labels and lines."""
    from matplotlib.transforms import Bbox

    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # keeps the axes in place while labels are added
    centres = [axes.transData.transform((point.x, point.y)) for point in points]
    occupied = [Bbox.from_extents(x - 5, y - 5, x + 5, y + 5) for x, y in centres]  # points, then labels
    samples = _sample_lines([axes.transData.transform(line) for line in lines])
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": INK, "zorder": 4}
    for index, (x, y, text) in enumerate(points):
        label = axes.annotate(fill(text, NAME), (x, y), xytext=(0, 0), **style)
        others = [*occupied[:index], *occupied[index + 1 :]]
        boxes = _boxes_at_offsets(label, pixels_per_point=figure.dpi / 72)
        costs = []
        for box in boxes:
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and axes.bbox.y0 <= box.y0
            # text over text is unreadable, text over a thin line is only ugly
            costs.append(OVER_TEXT * (box.count_overlaps(others) + (not inside)) + count_crossings(box, samples))
        best = costs.index(min(costs))
        _move_label(label, OFFSETS[best])
        occupied.append(boxes[best])


def _boxes_at_offsets(label: "Annotation", *, pixels_per_point: float) -> "list[Bbox]":
    """Return the box of a label on the screen at each of ``OFFSETS``.

    The text is laid out only once per side of the point, because that is the slowest part of a plot.
    """
    box_of_side = {}
    for side, _ in OFFSETS[:2]:
        _move_label(label, (side, 0))
        box_of_side[side] = label.get_window_extent()
    return [box_of_side[side].translated(0, up * pixels_per_point) for side, up in OFFSETS]


def _move_label(label: "Annotation", offset: tuple[int, int]) -> None:
    """Move a label to an offset from its point, in points."""
    label.xyann = offset
    label.set_horizontalalignment("left" if offset[0] > 0 else "right")


def _sample_lines(lines: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return points along lines, ``[num_lines, SAMPLES + 1, 2]``, of which each has two ends ``[2, 2]``."""
    ends = np.array(lines, dtype=np.float64).reshape(-1, 2, 2)
    shares = np.arange(SAMPLES + 1)[None, :, None] / SAMPLES
    return ends[:, :1] + shares * (ends[:, 1:] - ends[:, :1])


def count_crossings(box: "Bbox", samples: NDArray[np.float64]) -> int:
    """Return the number of lines through a box.

    Args:
        box: Box on the screen.
        samples: Points along the lines, ``[num_lines, num_samples, 2]``.

    Returns:
        Number of lines with at least one point in the box. Points on its edge count.
    """
    is_inside = np.all((samples >= box.min) & (samples <= box.max), axis=2)
    return int(np.count_nonzero(np.any(is_inside, axis=1)))


def _render(picture: Picture, form: str, title: str = "") -> bytes:
    from matplotlib import style  # imported here because it is slow; the object interface needs no display
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    content = BytesIO()
    with style.context(["default", {**STYLE, "svg.hashsalt": picture.name}]):
        figure = Figure(figsize=(WIDTH, picture.height), layout="constrained")
        FigureCanvasAgg(figure)  # measures texts with one renderer; the default canvas makes one for every text
        axes = figure.subplots()
        if title:
            axes.set_title(fill(title, TITLE), fontsize=10)
        picture.draw(axes)
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(content, format=form, dpi=130, transparent=form == "svg", metadata=metadata)
    return content.getvalue()
