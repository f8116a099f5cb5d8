"""Routing against one path for all, chance, and the best that routing could do."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import markdown_table, p_text
from graphrerank.graphs.routes import DENSE, FUSION, GRAPH, ROUTES, choose_routes, route_shares
from graphrerank_papers.ea_graphrag.two_paths import ROUTED_MEASURES, TwoPaths

JUDGED = "PR@5"  # what the oracle chooses by, and the tests compare
FULL = "full"


@dataclass(frozen=True, eq=False)
class Choices:
    """The outcome of each path on each of ``n`` questions."""

    # `[n, 3]` float64 of each measure, a column per path in the order of `ROUTES`; NaN = does not count
    values: Mapping[str, Tensor]
    seconds: Tensor  # `[n, 3]` float64 on each path
    scores: Tensor  # `[n]`, s(q)
    route_seconds: float  # what reading a question's syntax and scoring it takes

    def take(self, index: Tensor) -> "Choices":
        """Return some of the questions, ``index`` ``[m]`` int64."""
        values = {measure: per_question[index] for measure, per_question in self.values.items()}
        return Choices(values, self.seconds[index], self.scores[index], self.route_seconds)


@dataclass(frozen=True, eq=False)
class RoutedRow:
    """The result of one way to choose the path."""

    values: Mapping[str, Tensor]  # `[n]` float64 of each measure
    seconds: float  # mean seconds per question
    shares: Mapping[str, float]  # share of the questions on each of `ROUTES`

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        counted = {measure: scores for measure, scores in self.values.items() if not bool(scores.isnan().all())}
        return {
            **{measure: float(scores.nanmean()) for measure, scores in counted.items()},
            "interval": {measure: bootstrap_interval(scores).tolist() for measure, scores in counted.items()},
            "ms": 1000 * self.seconds,
            "routes": dict(self.shares),
        }


@dataclass(frozen=True, eq=False)
class RoutedResult:
    """All ways to choose the path, on the same questions."""

    rows: Mapping[str, RoutedRow]  # by name, in the order of the table's rows
    # full routing against random routing at the same rates: paired randomisation over questions, two-sided
    p_random: float
    p_draws: float  # share of the random draws that were as good as full routing, plus one of each
    p_paths: Mapping[str, float]  # full routing against `dense` and `graph`, as `p_random`

    @property
    def regret(self) -> float:
        """How far the oracle is ahead of full routing, as a share of the questions."""
        return float(self.rows["oracle"].values[JUDGED].mean() - self.rows[FULL].values[JUDGED].mean())

    def to_json(self) -> dict[str, Any]:
        """Return its entry of ``metrics.json``."""
        return {
            "questions": len(self.rows[FULL].values[JUDGED]),
            "rows": {name: row.to_json() for name, row in self.rows.items()},
            "p_random": self.p_random,
            "p_draws": self.p_draws,
            "p_paths": dict(self.p_paths),
            "regret": self.regret,
        }


def weigh_choices(
    paths: TwoPaths, scores: Tensor, *, fused_nodes: Tensor, fuse_seconds: float, route_seconds: float
) -> Choices:
    """Measure the outcome of each path on each question; ``fused_nodes`` are :meth:`TwoPaths.fused` by ``scores``."""
    measured = [paths.measure(nodes) for nodes in (paths.dense.nodes, paths.graph.nodes, fused_nodes)]
    values = {measure: torch.stack([of_path[measure] for of_path in measured], dim=1) for measure in ROUTED_MEASURES}
    dense, graph = paths.seconds
    seconds = torch.tensor([dense, graph, dense + graph + fuse_seconds], dtype=torch.float64)
    return Choices(values, seconds.expand(len(paths), -1), scores, route_seconds)


def join_choices(parts: Sequence[Choices]) -> Choices:
    """Put the questions of several data sets together; scoring takes as long as on average."""
    total = sum(len(part.scores) for part in parts)
    return Choices(
        {measure: torch.cat([part.values[measure] for part in parts]) for measure in ROUTED_MEASURES},
        torch.cat([part.seconds for part in parts]),
        torch.cat([part.scores for part in parts]),
        sum(part.route_seconds * len(part.scores) for part in parts) / total,
    )


def compare_routing(
    choices: Choices,
    *,
    thresholds: tuple[float, float],
    without_fusion: tuple[float, float],
    draws: int = 1000,
    seed: int = 0,
) -> RoutedResult:
    r"""Compare ways to choose the path of each question.

    ``dense``, ``graph`` and ``fusion`` send all questions one way; ``random`` deals the routes of ``full`` among the
    questions at random, averaged over draws; ``no fusion`` and ``full`` use the adapter's scores and the two
    ``thresholds``, low and high (``no fusion``: a score between ``without_fusion`` goes where it is nearer); ``oracle``
    knows which path is right (PR@5), and of several takes the fastest. Only the adapter's rows pay for the scoring.

    The share of draws is the permutation test of whether the routes depend on the questions:

    .. math:: p = \frac{1 + |\{d : \bar v_d \ge \bar v\}|}{1 + D}
    """
    num_questions = len(choices.scores)
    if num_questions < 1 or draws < 1:
        raise ValueError(f"`choices` must hold a question and `draws` be positive, got {num_questions} and {draws}")
    routes = choose_routes(choices.scores, *thresholds)
    low, high = without_fusion
    binary = torch.where(choices.scores.double() >= (low + high) / 2, GRAPH, DENSE)
    cheapness = 1e-6 * choices.seconds / choices.seconds.max().clamp(min=1e-30)
    best = (choices.values[JUDGED] - cheapness).argmax(1)
    random, drawn = _random_routing(choices, routes, draws, seed)
    paid = choices.route_seconds
    rows = {
        "dense": _row(choices, torch.full_like(routes, DENSE)),
        "graph": _row(choices, torch.full_like(routes, GRAPH)),
        "fusion": _row(choices, torch.full_like(routes, FUSION), extra_seconds=paid),
        "random": random,
        "no fusion": _row(choices, binary, extra_seconds=paid),
        FULL: _row(choices, routes, extra_seconds=paid),
        "oracle": _row(choices, best),
    }
    full = rows[FULL].values[JUDGED]
    as_good = int((drawn >= full.mean() - 1e-9).sum())
    return RoutedResult(
        rows,
        p_random=float(paired_randomization(full, random.values[JUDGED])),
        p_draws=(1 + as_good) / (1 + draws),
        p_paths={name: float(paired_randomization(full, rows[name].values[JUDGED])) for name in ("dense", "graph")},
    )


def routing_table(result: RoutedResult) -> str:
    """Lay the rows out in Markdown: measures in percent, milliseconds per question, share of each route in percent."""
    header = ["paths", *ROUTED_MEASURES, "ms", *ROUTES]
    lines = []
    for name, row in result.rows.items():
        means = [float(row.values[measure].nanmean()) for measure in ROUTED_MEASURES]
        quality = ["" if math.isnan(mean) else f"{100 * mean:.1f}" for mean in means]
        shares = [f"{100 * share:.0f}" for share in row.shares.values()]
        lines.append([name, *quality, f"{1000 * row.seconds:.1f}", *shares])
    against = ", ".join(f"{name} {p_text(p)}" for name, p in result.p_paths.items())
    notes = (
        f"Full against random routing at the same rates in {JUDGED}: {p_text(result.p_random)} (paired over "
        f"questions), {p_text(result.p_draws)} (share of draws as good); against {against}. "
        f"Regret against the oracle: {100 * result.regret:.1f} points."
    )
    return f"{markdown_table(header, lines)}\n\n{notes}"


def _row(choices: Choices, routes: Tensor, *, extra_seconds: float = 0.0) -> RoutedRow:
    at = routes.unsqueeze(1)
    return RoutedRow(
        {measure: per_path.gather(1, at).squeeze(1) for measure, per_path in choices.values.items()},
        float(choices.seconds.gather(1, at).mean()) + extra_seconds,
        route_shares(routes),
    )


def _random_routing(choices: Choices, routes: Tensor, draws: int, seed: int) -> tuple[RoutedRow, Tensor]:
    """Deal the routes among the questions: the row averaged over draws, and ``[draws]`` means of what is judged."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.zeros(choices.seconds.shape, dtype=torch.float64)  # how often a question takes a route
    ones, means = torch.ones(len(routes), 1, dtype=torch.float64), []
    for _ in range(draws):
        dealt = routes[torch.randperm(len(routes), generator=generator)].unsqueeze(1)
        times.scatter_add_(1, dealt, ones)
        means.append(choices.values[JUDGED].gather(1, dealt).mean())
    rates = times / draws
    values = {measure: (per_path * rates).sum(1) for measure, per_path in choices.values.items()}
    seconds = float((choices.seconds * rates).sum(1).mean())
    return RoutedRow(values, seconds, route_shares(routes)), torch.stack(means)
