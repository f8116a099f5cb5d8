import pytest
import torch

from graphrerank.evaluation.pareto import dominated_points, pareto_points
from graphrerank.evaluation.study import Cost, DatasetStudy, SystemStudy


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


def system(name: str, score: float, ms: float | None) -> SystemStudy:
    cost = None if ms is None else Cost({"total": {"p50": ms, "p95": 2 * ms}})
    return SystemStudy(name, "run", name, {"R@5": torch.tensor([score]).double()}, {"R@5": (0.0, 1.0)}, cost)


def test_a_system_without_a_time_or_a_mean_is_left_out() -> None:
    systems = [
        system("gcs", 0.5, 1.0),
        system("file", 0.9, None),
        system("none", torch.nan, 1.0),
        system("x", 0.375, 2.0),
    ]
    dataset = DatasetStudy("toy", "test", "f", ["q"], [""], [1], {one.name: one for one in systems}, ("R@5",))
    found = pareto_points(dataset, "R@5")
    assert [(point.name, point.primary, point.dominated) for point in found] == [
        ("GCS", False, False),
        ("x", True, True),
    ]
    assert (found[1].ms, found[1].slow_ms, found[1].quality) == (2.0, 4.0, 0.375)
