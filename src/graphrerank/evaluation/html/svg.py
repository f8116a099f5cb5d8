"""Axes and marks of small plots in SVG; colours and fonts come from the page's style sheet."""

import math
from dataclasses import dataclass

from graphrerank.evaluation.html.elements import Markup, tag

WIDTH = 400  # of every plot's view box: text stays readable on a phone
CHARACTER = 6.7  # mean width of one at the plots' font size
LABEL_HEIGHT = 13
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Scale:
    """Maps numbers to places on the page.

    Attributes:
        low: The number at ``start``.
        high: The number at ``stop``; above ``low``.
        start: Place in the view box.
        stop: Place in the view box.
        log: Whether equal ratios are equally far apart; ``low`` must then be positive.
    """

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def at(self, number: float) -> float:
        """Return the place of a number, within the frame."""
        low, high, x = (math.log(n) if self.log else n for n in (self.low, self.high, number))
        share = min(1.0, max(0.0, (x - low) / (high - low)))
        return self.start + share * (self.stop - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Choose about ``count`` round numbers."""
        if self.log and len(found := _log_ticks(self.low, self.high, count)) > 1:
            return found
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * s for s in STEPS if power * s >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 3), (1,)):
        found = [d * 10.0**power for power in decades for d in digits if low <= d * 10.0**power <= high]
        if len(found) <= 2 * count:
            break
    return found


def number_text(number: float) -> str:
    """Write a tick's number: no more digits than it needs.

    Example:
        >>> number_text(0.5), number_text(20.0), number_text(2000.0)
        ('0.5', '20', '2,000')
    """
    return f"{number:,.0f}" if number == round(number) else f"{number:.3g}"


def x_axis(scale: Scale, y: float, *, top: float, label: str, count: int = 5) -> list[Markup]:
    """Draw ticks, grid lines up to ``top``, and the label of a horizontal axis at ``y``."""
    marks = []
    for number in scale.ticks(count):
        x = scale.at(number)
        marks.append(tag("line", x1=x, x2=x, y1=top, y2=y, class_="grid"))
        marks.append(tag("text", number_text(number), x=x, y=y + 16, class_="tick", text_anchor="middle"))
    middle = (scale.start + scale.stop) / 2
    return [*marks, tag("text", label, x=middle, y=y + 34, class_="label", text_anchor="middle")]


def y_axis(scale: Scale, x: float, *, right: float, label: str, count: int = 5) -> list[Markup]:
    """Draw ticks, grid lines up to ``right``, and the label above a vertical axis at ``x``."""
    marks = []
    for number in scale.ticks(count):
        y = scale.at(number)
        marks.append(tag("line", x1=x, x2=right, y1=y, y2=y, class_="grid"))
        marks.append(tag("text", number_text(number), x=x - 6, y=y + 4, class_="tick", text_anchor="end"))
    return [*marks, tag("text", label, x=4, y=14, class_="label")]


def svg(*children: str, height: float, title: str) -> Markup:
    """Write a plot of the common width; ``title`` is what a screen reader says."""
    box = f"0 0 {WIDTH} {height:g}"
    return tag("svg", *children, viewBox=box, role="img", aria_label=title, class_="plot")


def place_labels(
    points: list[tuple[float, float, str]], *, left: float, right: float, top: float, bottom: float
) -> list[Markup]:
    """Write a label beside each point where it covers neither a point nor another label, as far as there is room.

    Args:
        points: Place and text of each.
        left: Border of the plot, as the others.
        right: Border.
        top: Border.
        bottom: Border.
    """
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y, _ in points]
    labels = []
    for own, (x, y, text) in enumerate(points):
        width = CHARACTER * len(text)
        shifts = [(s * 8, 4 + d) for d in (-10, 10, -24, 24, -38, 38, -52, 52) for s in (1, -1)]
        boxes = [_box(x + dx, y + dy, width, "start" if dx > 0 else "end") for dx, dy in shifts]
        others = taken[:own] + taken[own + 1 :]
        inside = [b for b in boxes if b[0] >= left and b[2] <= right and b[1] >= top and b[3] <= bottom]
        free = [b for b in inside if not any(_overlap(b, other) for other in others)]
        box = (free or inside or boxes)[0]
        taken.append(box)
        labels.append(tag("text", text, x=box[0], y=box[3] - 3, class_="name"))
    return labels


def _box(x: float, y: float, width: float, anchor: str) -> tuple[float, float, float, float]:
    left = x if anchor == "start" else x - width
    return left, y - LABEL_HEIGHT + 3, left + width, y + 3


def _overlap(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
