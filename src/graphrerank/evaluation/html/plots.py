"""The report's plots as SVG, drawn from a study."""

from collections.abc import Sequence
from math import isnan

from graphrerank.evaluation.findings import PairedTest, Reliability
from graphrerank.evaluation.html.elements import Markup, tag
from graphrerank.evaluation.html.svg import CHARACTER, WIDTH, Scale, number_text, place_labels, svg, x_axis, y_axis
from graphrerank.evaluation.pareto import FASTEST, ParetoPoint
from graphrerank.evaluation.reliability import wilson_interval
from graphrerank.evaluation.tables import row_name

LEFT, RIGHT, TOP = 44, WIDTH - 12, 26
HEIGHT = 300
ROW = 26  # height of a system in a plot of rows
LONGEST = 20  # letters of a name in a plot of rows


def pareto_plot(points: Sequence[ParetoPoint], measure: str) -> Markup:
    """Draw quality against the median time, with the front, 95% intervals, and a line to the 95th percentile.

    Args:
        points: At least one.
        measure: Name of the measure.
    """
    times = [max(FASTEST, ms) for point in points for ms in (point.ms, point.slow_ms)]
    x = Scale(min(times) / 1.6, max(times) * 1.6, LEFT, RIGHT, log=True)
    ends = [100 * end for point in points for end in (*point.interval, point.quality) if not isnan(end)]
    y = _padded(ends, HEIGHT - 46, TOP)
    marks = x_axis(x, HEIGHT - 46, top=TOP, label="ms per query: median, line to the 95th percentile")
    marks += y_axis(y, LEFT, right=RIGHT, label=f"{measure}, percent, with 95% intervals")
    front = sorted((p for p in points if not p.dominated), key=lambda p: (p.ms, -p.quality))
    steps = [(x.at(max(FASTEST, p.ms)), y.at(100 * p.quality)) for p in front]
    marks.append(tag("path", d=_stairs(steps, right=RIGHT), class_="front"))
    places = []
    for point in points:
        at = x.at(max(FASTEST, point.ms)), y.at(100 * point.quality)
        marks.append(_pareto_mark(point, x, y, at, measure))
        places.append((*at, point.name))
    marks += place_labels(places, left=LEFT, right=RIGHT + 8, top=TOP - 10, bottom=HEIGHT - 48)
    return svg(*marks, height=HEIGHT, title=f"{measure} against milliseconds per query")


def intervals_plot(rows: Sequence[tuple[str, float, tuple[float, float]]], *, primary: str, measure: str) -> Markup:
    """Draw each system's mean with its 95% interval.

    Args:
        rows: Name, mean and interval of each system, as fractions; none is NaN.
        primary: Name of the system that stands out.
        measure: Name of the measure.
    """
    ends = [100 * end for _, mean, interval in rows for end in (mean, *interval)]
    return _rows_plot(
        [(name, 100 * mean, (100 * low, 100 * high)) for name, mean, (low, high) in rows],
        ends,
        kinds=["point primary" if name == primary else "point" for name, *_ in rows],
        label=f"{measure}, percent, with 95% intervals",
    )


def differences_plot(tests: Sequence[PairedTest]) -> Markup:
    """Draw how far the primary system is ahead of each other one, with 95% intervals; all tests of one measure."""
    rows = [(row_name(t.baseline), 100 * t.difference, (100 * t.interval[0], 100 * t.interval[1])) for t in tests]
    ends = [0.0, *(end for _, difference, interval in rows for end in (difference, *interval))]
    name = row_name(tests[0].system)
    return _rows_plot(
        rows,
        ends,
        kinds=[_kind(interval) for _, _, interval in rows],
        label=f"{name} minus the other, points of {tests[0].measure}",
        zero=True,
    )


def reliability_plot(found: Reliability) -> Markup:
    """Draw the share of relevant candidates against the probability that they were given, bin by bin."""
    bottom = HEIGHT - 46
    x, y = Scale(0, 1, LEFT, RIGHT), Scale(0, 1, bottom, TOP)
    marks = x_axis(x, bottom, top=TOP, label="probability given")
    marks += y_axis(y, LEFT, right=RIGHT, label="share relevant, with 95% intervals; larger: more candidates")
    marks.append(tag("line", x1=LEFT, y1=bottom, x2=RIGHT, y2=TOP, class_="diagonal"))
    most, places = max(found.counts), []
    for count, probability, share in zip(found.counts, found.probabilities, found.shares, strict=True):
        if not count:
            continue
        low, high = wilson_interval(share, count)
        at = x.at(probability), y.at(share)
        places.append(at)
        text = f"{count:,} candidates given {probability:.3f} on average: {share:.3f} are relevant"
        weight = 3 + 4 * (len(f"{count}") / len(f"{most}"))
        marks.append(
            tag(
                "g",
                tag("title", text),
                tag("line", x1=at[0], x2=at[0], y1=y.at(low), y2=y.at(high), class_="interval"),
                tag("circle", cx=at[0], cy=at[1], r=weight, class_="point primary"),
                class_="mark",
            )
        )
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    marks.append(tag("polyline", points=line, class_="curve"))
    return svg(*marks, height=HEIGHT, title=f"Reliability of {found.system}")


def _pareto_mark(point: ParetoPoint, x: Scale, y: Scale, at: tuple[float, float], measure: str) -> Markup:
    low, high = (100 * end for end in point.interval)
    text = (
        f"{point.name}: {measure} {100 * point.quality:.2f} (95% {low:.2f} to {high:.2f}), "
        f"median {point.ms:.2f} ms, 95th percentile {point.slow_ms:.2f} ms" + ("; dominated" if point.dominated else "")
    )
    lines = [tag("line", x1=at[0], x2=x.at(max(FASTEST, point.slow_ms)), y1=at[1], y2=at[1], class_="interval tail")]
    if not isnan(low):
        lines.append(tag("line", x1=at[0], x2=at[0], y1=y.at(low), y2=y.at(high), class_="interval"))
    kind = "point" + (" primary" if point.primary else "") + (" dominated" if point.dominated else "")
    return tag("g", tag("title", text), *lines, tag("circle", cx=at[0], cy=at[1], r=5, class_=kind), class_="mark")


def _rows_plot(
    rows: Sequence[tuple[str, float, tuple[float, float]]],
    ends: Sequence[float],
    *,
    kinds: Sequence[str],
    label: str,
    zero: bool = False,
) -> Markup:
    """Draw a row per system: its name, a point and its interval."""
    names = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name, *_ in rows]
    left = 12 + CHARACTER * max(map(len, names))
    bottom = TOP - 12 + ROW * len(rows)
    x = _padded(ends, left, RIGHT - 46)
    marks = x_axis(x, bottom, top=TOP - 14, label=label, count=4)
    if zero:
        marks.append(tag("line", x1=x.at(0), x2=x.at(0), y1=TOP - 14, y2=bottom, class_="zero"))
    for place, (name, number, (low, high)) in enumerate(rows):
        y = TOP - 12 + ROW * (place + 0.5)
        text = f"{number:+.1f}" if zero else f"{number:.1f}"
        marks += [
            tag("text", names[place], x=left - 8, y=y + 4, class_="name", text_anchor="end"),
            tag(
                "g",
                tag("title", f"{name}: {text} (95% {low:.2f} to {high:.2f})"),
                tag("line", x1=x.at(low), x2=x.at(high), y1=y, y2=y, class_="interval"),
                tag("circle", cx=x.at(number), cy=y, r=5, class_=kinds[place]),
                class_="mark",
            ),
            tag("text", text, x=WIDTH - 4, y=y + 4, class_="name", text_anchor="end"),
        ]
    return svg(*marks, height=bottom + 42, title=label)


def _kind(interval: tuple[float, float]) -> str:
    """Mark a gain and a loss whose interval leaves 0 out."""
    return "point primary" if interval[0] > 0 else "point behind" if interval[1] < 0 else "point"


def _padded(numbers: Sequence[float], start: float, stop: float) -> Scale:
    """Scale numbers so that the outermost stand a little inside."""
    low, high = min(numbers), max(numbers)
    room = 0.06 * (high - low) or 0.5
    return Scale(low - room, high + room, start, stop)


def _stairs(points: Sequence[tuple[float, float]], *, right: float) -> str:
    """Draw the front: the best quality that each time buys."""
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for x, y in points[1:]:
        path += f"H{x:.1f}V{y:.1f}"
    return f"{path}H{number_text(right)}"
