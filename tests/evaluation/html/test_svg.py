import re

import pytest

from graphrerank.evaluation.html.svg import Scale, place_labels


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (Scale(0, 1, 0, 100), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Scale(38.2, 71.0, 0, 100), [40, 50, 60, 70]),
        (Scale(-3, 24, 0, 100), [0, 10, 20]),
        (Scale(0.15, 600, 0, 100, log=True), [0.3, 1, 3, 10, 30, 100, 300]),
        (Scale(1.5, 7, 0, 100, log=True), [2, 5]),
        (Scale(2.1, 3.2, 0, 100, log=True), [2.25, 2.5, 2.75, 3.0]),
    ],
)
def test_ticks_are_round_and_inside(scale: Scale, expected: list[float]) -> None:
    assert scale.ticks() == pytest.approx(expected)


@pytest.mark.parametrize("low", [1e-3, 0.07, 3.0, 800.0])
@pytest.mark.parametrize("ratio", [1.5, 8.0, 4e3, 1e6])
@pytest.mark.parametrize("log", [False, True])
def test_there_are_ticks_at_any_scale(low: float, ratio: float, log: bool) -> None:
    scale = Scale(low, low * ratio, 0, 100, log=log)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 12
    assert all(low <= tick <= low * ratio for tick in ticks)


def test_places() -> None:
    assert Scale(0, 10, 100, 300).at(2.5) == 150
    assert Scale(1, 100, 0, 100, log=True).at(10) == pytest.approx(50)
    assert Scale(0, 1, 300, 20).at(1) == 20  # upwards
    assert Scale(0, 1, 0, 100).at(7) == 100  # never out of the frame


def test_labels_keep_off_each_other() -> None:
    points = [(100.0 + 3 * i, 100.0 + 2 * i, f"system {i}") for i in range(6)]
    labels = place_labels(points, left=0, right=400, top=0, bottom=300)
    boxes = []
    for (_, _, text), label in zip(points, labels, strict=True):
        x, y = (float(re.search(rf' {key}="([\d.]+)"', label).group(1)) for key in "xy")
        boxes.append((x, y - 10, x + 6.7 * len(text), y + 3))
    for i, a in enumerate(boxes):
        for b in boxes[:i]:
            assert not (a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3])
        assert a[0] >= 0
        assert a[2] <= 400
