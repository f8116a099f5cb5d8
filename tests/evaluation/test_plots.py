import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from graphrerank.evaluation.plots import (
    ACCENT,
    INK,
    WARM,
    ParetoPoint,
    dataset_pictures,
    difference_rows,
    dominated_points,
    draw_gains,
    draw_pareto,
    draw_reliability,
    draw_rows,
    gain_cells,
    mean_rows,
    pareto_points,
    svg,
    write_plots,
)
from graphrerank.evaluation.records import Cost, DatasetResult, Reliability, SystemResult
from graphrerank.evaluation.reliability import wilson_interval

NAN = float("nan")
POINTS = [
    ParetoPoint("retriever", 0.2, 0.3, 0.4, (0.35, 0.45), False, False),
    ParetoPoint("slow", 50.0, 80.0, 0.3, (NAN, NAN), False, True),
    ParetoPoint("ours", 2.0, 3.0, 0.7, (0.65, 0.75), True, False),
]


@pytest.fixture
def axes() -> Axes:
    return Figure(figsize=(5.6, 4.2), layout="constrained").subplots()


def lines_of(axes: Axes) -> list[tuple[list[float], list[float]]]:
    return [
        ([float(x) for x in line.get_xdata()], [round(float(y), 6) for y in line.get_ydata()]) for line in axes.lines
    ]


def test_pareto_marks_what_is_dominated_and_draws_intervals(axes: Axes) -> None:
    draw_pareto(axes, points=POINTS, measure="PR@10")
    assert [text.get_text() for text in axes.texts] == ["retriever", "slow", "ours"]
    lines = lines_of(axes)
    assert ([0.2, 0.2], [35.0, 45.0]) in lines
    assert ([2.0, 3.0], [70.0, 70.0]) in lines
    assert lines[-1] == ([0.2, 2.0], [40.0, 70.0])  # the front
    hollow = [line.get_xdata()[0] for line in axes.lines if line.get_markerfacecolor() == "#ffffff"]
    assert hollow == [50.0]


def test_queries_are_counted_by_both_scores(axes: Axes) -> None:
    baseline, ours = torch.tensor([0.0, 0.0, 1.0, 0.5, NAN, 0.51]), torch.tensor([1.0, 1.0, 0.0, 0.5, 1.0, 0.52])
    assert gain_cells(baseline, ours) == [(0.0, 100.0, 2), (50.0, 50.0, 2), (100.0, 0.0, 1)]
    draw_gains(axes, scores=[baseline, ours], labels=("retriever", "ours"), measure="PR@10")
    assert [text.get_text() for text in axes.texts] == ["3 gain", "1 lose"]  # 51 and 52 lie in one cell
    marks = [line for line in axes.lines if line.get_marker() == "o"]
    assert [mark.get_color() for mark in marks] == [ACCENT, INK, WARM]
    assert marks[0].get_markersize() > marks[2].get_markersize()


def test_the_retriever_is_what_queries_are_set_against(dataset: DatasetResult) -> None:
    assert dataset.baseline == "retriever"
    others = {name: system for name, system in dataset.systems.items() if name != "retriever"}
    assert replace(dataset, systems=others).baseline == next(iter(others))
    alone = {dataset.primary: dataset.systems[dataset.primary]}
    assert replace(dataset, systems=alone).baseline is None


@pytest.mark.parametrize(("low", "ratio"), [(1e-3, 1.2), (0.15, 4e3), (2.1, 1.5), (0.07, 1e6), (800.0, 8.0)])
def test_times_have_plain_ticks_at_any_scale(low: float, ratio: float, axes: Axes) -> None:
    points = [replace(POINTS[0], ms=low, slow_ms=low), replace(POINTS[2], ms=low * ratio, slow_ms=low * ratio)]
    draw_pareto(axes, points=points, measure="PR@10")
    start, stop = axes.get_xlim()
    ticks = [tick for tick in axes.get_xticks() if start <= tick <= stop]
    assert 2 <= len(ticks) <= 12
    assert all(re.fullmatch(r"[\d,]+(\.\d+)?", axes.xaxis.get_major_formatter()(tick)) for tick in ticks)


def test_labels_keep_off_each_other(axes: Axes) -> None:
    points = [
        ParetoPoint(f"system {i}", 1.0 + 0.1 * i, 1.0 + 0.1 * i, 0.5 + 0.01 * i, (NAN, NAN), False, False)
        for i in range(6)
    ]
    draw_pareto(axes, points=points, measure="PR@10")
    boxes = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == [point.name for point in points]
    for place, box in enumerate(boxes):
        assert not box.count_overlaps(boxes[:place])
        assert axes.get_figure().bbox.x0 <= box.x0 < box.x1 <= axes.get_figure().bbox.x1


def test_every_point_has_its_label_where_there_is_no_room(axes: Axes) -> None:
    points = [replace(POINTS[2], name=f"one of many systems, number {i}") for i in range(30)]
    draw_pareto(axes, points=points, measure="PR@10")
    texts = [" ".join(text.get_text().split()) for text in axes.texts]
    assert texts == [point.name for point in points]


def test_reliability_leaves_empty_bins_out(axes: Axes) -> None:
    entry = Reliability("gatv2", "isotonic", 120, 0.2, 0.01, 0.1, (1000, 0, 20), (0.1, NAN, 0.8), (0.08, NAN, 0.75))
    draw_reliability(axes, entry=entry)
    assert [text.get_text() for text in axes.texts] == ["1,000", "20"]
    lines = lines_of(axes)
    assert ([0.1, 0.8], [0.08, 0.75]) in lines
    assert ([0.8, 0.8], [round(end, 6) for end in wilson_interval(0.75, 20)]) in lines


def test_rows_are_means_and_differences_in_the_colours_of_what_they_say(dataset: DatasetResult, axes: Axes) -> None:
    means = mean_rows(dataset, "PR@10")
    assert [row.number.value for row in means] == [system.means["PR@10"] for system in dataset.systems.values()]
    assert [row.color for row in means] == [INK] * 6 + [ACCENT]
    first, *others = (test for test in dataset.tests if test.measure == "PR@10")
    tests = [replace(first, difference=-0.2, interval=(-0.3, -0.1)), replace(others[0], difference=NAN), *others[1:]]
    rows = difference_rows(replace(dataset, tests=tests), "PR@10")
    assert [row.color for row in rows] == [WARM, ACCENT, ACCENT, ACCENT, INK]
    draw_rows(axes, rows=rows, label="points", zero=True)
    assert [text.get_text() for text in axes.texts] == [f"{100 * row.number.value:+.2f}" for row in rows]
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.name for row in rows]
    assert ([-30.0, -10.0], [0, 0]) in [([round(x, 6) for x in xs], ys) for xs, ys in lines_of(axes)]


class Elements(HTMLParser):
    """Collects elements, attributes and texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts += [data.strip()] if data.strip() else []


HOSTILE = "<script>alert('1')</script> & $\\frac$ \"x\""


def test_names_are_text_in_svg_and_colours_are_the_pages(dataset: DatasetResult) -> None:
    systems = {HOSTILE if name == "ppr" else name: system for name, system in dataset.systems.items()}
    tests = [replace(test, baseline=HOSTILE) if test.baseline == "ppr" else test for test in dataset.tests]
    pictures = list(dataset_pictures(replace(dataset, systems=systems, tests=tests, tested=("PR@10",))))
    assert len(pictures) == 4 + 1
    for picture in pictures:
        text = svg(picture)
        page = Elements(text)
        assert {name for name, _ in page.elements} <= {"svg", "g", "defs", "path", "use", "text", "title", "clippath",
                                                       "rect", "tspan"}  # fmt: skip
        assert page.elements[0][1]["aria-label"] == picture.caption
        assert page.elements[0][1]["role"] == "img"
        assert not re.search(r"#[0-9a-f]{6}\b|https?:|<metadata|<style|font-family", text)
        ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
        references = {a["xlink:href"] for _, a in page.elements if "xlink:href" in a}
        references |= set(re.findall(r"url\((#[^)]*)\)", text))
        assert references == {f"#{name}" for name in ids}
    means = Elements(svg(pictures[0])).texts
    low, high = systems[HOSTILE].intervals["PR@10"]
    mean = systems[HOSTILE].means["PR@10"]
    assert f"{HOSTILE}: {100 * mean:.2f} ({100 * low:.1f} to {100 * high:.1f})" in means
    assert "".join(means).replace(" ", "").count(HOSTILE.replace(" ", "")) == 3  # hints of two marks, and the name


def test_the_same_picture_gives_the_same_svg(dataset: DatasetResult) -> None:
    first, second = (svg(next(dataset_pictures(dataset))) for _ in range(2))  # ids are hashes, with a salt of its own
    assert first == second


def test_png_files_are_the_same_pictures(dataset: DatasetResult, tmp_path: Path) -> None:
    dataset = replace(dataset, tested=("PR@10",))
    files = write_plots(tmp_path, [dataset])
    assert [file.name for file in files] == [
        "attack.means.PR@10.png", "attack.differences.PR@10.png", "attack.queries.PR@10.png",
        "attack.pareto.PR@10.png", "attack.reliability.gatv2.png",
    ]  # fmt: skip
    assert all(file.read_bytes()[:4] == b"\x89PNG" for file in files)
    assert len({file.read_bytes() for file in files}) == len(files)


@pytest.mark.parametrize(("share", "count"), [(0.0, 5), (0.3, 10), (0.5, 1000), (1.0, 3)])
def test_wilson_interval_against_scipy(share: float, count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(round(share * count), count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(share, count) == pytest.approx((expected.low, expected.high), abs=1e-5)


@pytest.mark.parametrize("seed", range(5))
def test_against_naive_loop(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    points = [tuple(row) for row in torch.randint(0, 6, (30, 2), generator=generator).tolist()]
    for (ms, quality), dominated in zip(points, dominated_points(points), strict=True):
        beaten = False
        for other_ms, other in points:
            no_worse = other_ms <= ms and other >= quality
            beaten |= no_worse and (other_ms < ms or other > quality)
        assert dominated == beaten


def system(name: str, score: float, ms: float | None) -> SystemResult:
    cost = None if ms is None else Cost({"total": {"p50": ms, "p95": 2 * ms}})
    return SystemResult(name, "run", name, {"R@5": torch.tensor([score]).double()}, {"R@5": (0.0, 1.0)}, cost)


def test_a_system_without_a_time_or_a_mean_is_left_out() -> None:
    systems = [
        system("gcs", 0.5, 1.0),
        system("file", 0.9, None),
        system("none", torch.nan, 1.0),
        system("x", 0.375, 2.0),
    ]
    dataset = DatasetResult("toy", "test", "f", ["q"], [""], [1], {one.name: one for one in systems}, ("R@5",))
    found = pareto_points(dataset, "R@5")
    assert [(point.name, point.primary, point.dominated) for point in found] == [
        ("GCS", False, False),
        ("x", True, True),
    ]
    assert (found[1].ms, found[1].slow_ms, found[1].quality) == (2.0, 4.0, 0.375)
