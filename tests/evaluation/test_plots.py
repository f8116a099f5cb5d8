import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from graphrerank.evaluation.plots import ACCENT, INK, WARM, count_crossings, dataset_pictures, merged_bins, svg
from graphrerank.evaluation.records import Cost, DatasetResult, Reliability, SystemResult
from tests.support.results import Outline

NAN = float("nan")


def system(name: str, score: float, ms: float | None, interval: tuple[float, float] = (NAN, NAN)) -> SystemResult:
    cost = None if ms is None else Cost({"total": {"p50": ms, "p95": 1.5 * ms}})
    return SystemResult(name, "run", name, {"R@5": torch.tensor([score], dtype=torch.float64)}, {"R@5": interval}, cost)


def toy(*systems: SystemResult) -> DatasetResult:
    return DatasetResult("toy", "test", "f", ["q"], [""], [1], {one.name: one for one in systems}, ("R@5",))


def draw(dataset: DatasetResult, name: str) -> Axes:
    """Draw the picture of a name."""
    axes = Figure(figsize=(5.6, 4.2), layout="constrained").subplots()
    next(picture for picture in dataset_pictures(dataset) if name in picture.name).draw(axes)
    return axes


def lines_of(axes: Axes) -> list[tuple[list[float], list[float]]]:
    return [
        ([float(x) for x in line.get_xdata()], [round(float(y), 6) for y in line.get_ydata()]) for line in axes.lines
    ]


def points_of(axes: Axes) -> list[str]:
    return [line.get_color() for line in axes.lines if line.get_marker() == "o"]


def test_pareto_marks_what_is_dominated_and_draws_intervals() -> None:
    systems = [system("first", 0.4, 0.2, (0.35, 0.45)), system("file", 0.9, None), system("none", NAN, 1.0),
               system("slow", 0.3, 50.0), system("ours", 0.7, 2.0, (0.65, 0.75))]  # fmt: skip
    axes = draw(toy(*systems), "pareto")
    assert [text.get_text() for text in axes.texts] == ["first", "slow", "ours"]  # those with a time and a mean
    lines = lines_of(axes)
    assert ([0.2, 0.2], [35.0, 45.0]) in lines
    assert ([2.0, 3.0], [70.0, 70.0]) in lines
    assert lines[-1] == ([0.2, 2.0], [40.0, 70.0])  # the front
    hollow = [line.get_xdata()[0] for line in axes.lines if line.get_markerfacecolor() == "#ffffff"]
    assert hollow == [50.0]


def test_small_bins_are_merged_with_their_neighbours() -> None:
    def bins(*counts: int) -> list[tuple[int, float, float]]:
        shares = tuple(float(number % 2) if count else NAN for number, count in enumerate(counts))
        probabilities = tuple(0.1 * number if count else NAN for number, count in enumerate(counts))
        entry = Reliability("a", "logistic", sum(counts), 0.5, 0.0, 0.0, counts, probabilities, shares)
        return merged_bins(entry, minimum=10)

    assert bins(20, 10, 0, 30) == [(20, 0.0, 0.0), (10, 0.1, 1.0), (30, pytest.approx(0.3), 1.0)]
    assert bins(1, 19, 10) == [(20, pytest.approx(0.095), 0.95), (10, 0.2, 0.0)]
    assert bins(20, 5, 4) == [(29, pytest.approx(1.3 / 29), pytest.approx(5 / 29))]
    assert bins(1, 2) == [(3, pytest.approx(0.2 / 3), pytest.approx(2 / 3))]
    assert bins(0, 0) == []


def test_a_label_does_not_lie_on_the_interval_of_its_neighbour() -> None:
    """The first offset, to the upper right, would put it over the interval of the second system."""
    axes = draw(toy(system("first", 0.5, 1.0), system("second", 0.48, 1.15, (0.3, 0.7))), "pareto")
    axes.get_figure().draw_without_rendering()
    label = next(text for text in axes.texts if text.get_text() == "first").get_window_extent()
    (x, low), (_, high) = axes.transData.transform([(1.15, 30.0), (1.15, 70.0)])
    assert not (label.x0 <= x <= label.x1 and low <= label.y1 and label.y0 <= high)


def test_crossings_against_naive_loop() -> None:
    generator = np.random.default_rng(0)
    samples = generator.integers(0, 12, (30, 3, 2)).astype(float)  # whole numbers: points on the edges of the box, too
    box = Bbox([[3.0, 4.0], [7.0, 6.0]])
    expected = sum(any(box.contains(x, y) for x, y in line) for line in samples)
    assert 0 < expected < len(samples)
    assert count_crossings(box, samples) == expected
    assert count_crossings(box, np.zeros((0, 3, 2))) == 0


@pytest.mark.parametrize(("low", "ratio"), [(1e-3, 1.2), (0.15, 4e3), (0.07, 1e6)])
def test_times_have_plain_ticks_at_any_scale(low: float, ratio: float) -> None:
    axes = draw(toy(system("a", 0.4, low), system("b", 0.7, low * ratio)), "pareto")
    start, stop = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if start <= tick <= stop]
    assert 2 <= len(ticks) <= 12
    assert all(re.fullmatch(r"[\d,]+(\.\d+)?", axes.xaxis.get_major_formatter()(tick)) for tick in ticks)


def test_labels_keep_off_each_other() -> None:
    systems = [system(f"system {i}", 0.5 + 0.01 * i, 1.0 + 0.1 * i) for i in range(6)]
    axes = draw(toy(*systems), "pareto")
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [one.name for one in systems]
    for place, box in enumerate(boxes):
        assert not box.count_overlaps(boxes[:place])
        assert axes.get_figure().bbox.x0 <= box.x0 < box.x1 <= axes.get_figure().bbox.x1


def test_reliability_leaves_empty_bins_out() -> None:
    entry = Reliability("gatv2", "logistic", 120, 0.2, 0.01, 0.1, (1000, 0, 20), (0.1, NAN, 0.8), (0.08, NAN, 0.75))
    axes = draw(replace(toy(system("gatv2", 0.5, None)), reliability=(entry,)), "reliability")
    assert [text.get_text() for text in axes.texts] == ["1,000", "20"]
    assert ([0.1, 0.8], [0.08, 0.75]) in lines_of(axes)
    assert ([0.8, 0.8], [0.531299, 0.888138]) in lines_of(axes)  # Wilson's interval of 15 of 20


def test_rows_are_differences_in_the_colours_of_what_they_say(dataset: DatasetResult) -> None:
    first, *others = (test for test in dataset.tests if test.measure == "PR@10")
    tests = [replace(first, difference=-0.2, interval=(-0.3, -0.1)), replace(others[0], difference=NAN), *others[1:]]
    axes = draw(replace(dataset, tests=tests), "differences.PR@10")
    assert points_of(axes) == [WARM, ACCENT, ACCENT, ACCENT, INK]
    assert axes.texts[0].get_text() == "-20.00"
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["retriever", "GCS", "cross-encoder", "their.run", "MLP"]
    assert ([-30.0, -10.0], [0, 0]) in [([round(x, 6) for x in xs], ys) for xs, ys in lines_of(axes)]


HOSTILE = "<script>alert('1')</script> & $\\frac$ \"x\""


def test_names_are_text_in_svg_and_colours_are_the_pages(dataset: DatasetResult) -> None:
    systems = {HOSTILE if name == "ppr" else name: system for name, system in dataset.systems.items()}
    tests = [replace(test, baseline=HOSTILE) if test.baseline == "ppr" else test for test in dataset.tests]
    pictures = list(dataset_pictures(replace(dataset, systems=systems, tests=tests, tested=("PR@10",))))
    assert len(pictures) == 2 + 1
    for picture in pictures:
        text = svg(picture)
        page = Outline(text)
        assert {name for name, _ in page.elements} <= {"svg", "g", "defs", "path", "use", "text", "title", "clippath",
                                                       "rect", "tspan"}  # fmt: skip
        assert page.elements[0][1]["aria-label"] == picture.caption
        assert page.elements[0][1]["role"] == "img"
        assert not re.search(r"#[0-9a-f]{6}\b|https?:|<metadata|<style|font-family", text)
        ids = set(page.attributes("id"))
        references = set(page.attributes("xlink:href"))
        references |= set(re.findall(r"url\((#[^)]*)\)", text))
        assert references == {f"#{name}" for name in ids}
    assert svg(pictures[0]) == svg(pictures[0])  # ids are hashes, with a salt of its own
    assert "".join(Outline(svg(pictures[0])).texts["text"]).replace(" ", "").count(HOSTILE.replace(" ", "")) == 1
