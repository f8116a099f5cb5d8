from pathlib import Path

import pytest

from graphrerank.evaluation.findings import Reliability
from graphrerank.evaluation.pareto import ParetoPoint
from graphrerank.evaluation.plots import draw_pareto, draw_reliability
from graphrerank.evaluation.reliability import wilson_interval

POINTS = [
    ParetoPoint("base", 0.2, 0.3, 0.4, (0.35, 0.45), False, False),
    ParetoPoint("slow", 50.0, 80.0, 0.3, (float("nan"), float("nan")), False, True),
    ParetoPoint("ours", 2.0, 3.0, 0.7, (0.65, 0.75), True, False),
]


def test_pareto_marks_what_is_dominated_and_draws_intervals(tmp_path: Path) -> None:
    figure = draw_pareto(POINTS, measure="PR@10", title="toy")
    axes = figure.axes[0]
    assert [text.get_text() for text in axes.texts] == ["base", "slow (dominated)", "ours"]
    lines = [(list(line.get_xdata()), [round(float(y), 6) for y in line.get_ydata()]) for line in axes.lines]
    assert ([0.2, 0.2], [35.0, 45.0]) in lines
    assert ([2.0, 3.0], [70.0, 70.0]) in lines
    assert lines[-1] == ([0.2, 2.0], [40.0, 70.0])  # the front
    hollow = [line.get_xdata()[0] for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert hollow == [50.0]
    figure.savefig(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"


def test_reliability_leaves_empty_bins_out() -> None:
    nan = float("nan")
    found = Reliability("gatv2", "isotonic", 120, 0.2, 0.01, 0.1, (100, 0, 20), (0.1, nan, 0.8), (0.08, nan, 0.75))
    axes = draw_reliability(found, title="toy").axes[0]
    assert [text.get_text() for text in axes.texts] == ["100", "20"]
    assert list(axes.lines[-1].get_ydata()) == [0.08, 0.75]
    assert "GATv2, isotonic, ECE 0.0100" in axes.get_title()


@pytest.mark.parametrize(("share", "count"), [(0.0, 5), (0.3, 10), (0.5, 1000), (1.0, 3)])
def test_wilson_interval_against_scipy(share: float, count: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(round(share * count), count).proportion_ci(0.95, method="wilson")
    assert wilson_interval(share, count) == pytest.approx((expected.low, expected.high), abs=1e-5)
