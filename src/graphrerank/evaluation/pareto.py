"""Quality against time: the systems that no other one beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

from graphrerank.evaluation.cost import TOTAL
from graphrerank.evaluation.study import DatasetStudy
from graphrerank.evaluation.tables import row_name

FASTEST = 1e-3  # milliseconds: the least that a logarithmic axis shows


@dataclass(frozen=True)
class ParetoPoint:
    """A system in the plane of time and quality."""

    name: str  # as tables call it
    ms: float  # median milliseconds of a query
    slow_ms: float  # the 95th percentile
    quality: float  # mean of the measure, as a fraction
    interval: tuple[float, float]  # its 95% interval
    primary: bool  # whether it is the system that the others are compared with
    dominated: bool  # whether another one is no slower and no worse, and better in one of both


def pareto_points(dataset: DatasetStudy, measure: str) -> list[ParetoPoint]:
    """Place the systems of a data set in the tables' order, without those that have no cost (run files) or no mean."""
    means = {name: system.means[measure] for name, system in dataset.systems.items()}
    times = {
        name: system.cost.ms[TOTAL]
        for name, system in dataset.systems.items()
        if system.cost is not None and TOTAL in system.cost.ms and not isnan(means[name])
    }
    dominated = dominated_points([(ms["p50"], means[name]) for name, ms in times.items()])
    return [
        ParetoPoint(
            name=row_name(name),
            ms=ms["p50"],
            slow_ms=ms["p95"],
            quality=means[name],
            interval=dataset.systems[name].intervals[measure],
            primary=name == dataset.primary,
            dominated=beaten,
        )
        for (name, ms), beaten in zip(times.items(), dominated, strict=True)
    ]


def dominated_points(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point of time and quality whether another one beats it: no slower, no worse, and not the same."""
    return [
        any(other <= ms and better >= quality and (other, better) != (ms, quality) for other, better in points)
        for ms, quality in points
    ]
