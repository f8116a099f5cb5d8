"""Routing against one path for all, chance, and the best that routing could do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.evaluation.tables import markdown_table, p_text
from graphrerank.graphs.routes import DENSE, FUSION, GRAPH, ROUTES, choose_routes
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
    route_seconds: float  # to read a question's syntax and score it

    def take(self, index: Tensor) -> "Choices":
        """Return some of the questions, ``index`` ``[m]`` int64."""
        values = {measure: per_question[index] for measure, per_question in self.values.items()}
        return Choices(values, self.seconds[index], self.scores[index], self.route_seconds)


def weigh_choices(
    paths: TwoPaths, scores: Tensor, *, fused_nodes: Tensor, fuse_seconds: float, route_seconds: float
) -> Choices:
    """Measure the outcome of each path on each question; ``fused_nodes`` are :meth:`TwoPaths.fused` by ``scores``."""
    measured = [paths.measure(nodes) for nodes in (paths.dense.nodes, paths.graph.nodes, fused_nodes)]
    values = {measure: torch.stack([of_path[measure] for of_path in measured], dim=1) for measure in ROUTED_MEASURES}
    return Choices(values, paths.path_seconds(fuse_seconds).expand(len(paths), -1), scores, route_seconds)


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
) -> dict[str, Any]:
    r"""Compare ways to choose the path of each question.

    ``dense``, ``graph`` and ``fusion`` send all questions one way; ``random`` deals the routes of ``full`` among the
    questions at random, averaged over draws; ``no fusion`` and ``full`` use the adapter's scores and the two
    ``thresholds``, low and high (``no fusion``: a score between ``without_fusion`` goes where it is nearer); ``oracle``
    knows which path is right (PR@5), and of several takes the fastest. Only the adapter's rows pay for the scoring.

    The share of draws is the permutation test of whether the routes depend on the questions:

    .. math:: p = \frac{1 + |\{d : \bar v_d \ge \bar v\}|}{1 + D}

    Returns:
        As JSON: ``rows`` by way, each with its means, their 95% ``interval``, ``ms`` per question and ``routes``, the
        share of each; ``p_random`` and ``p_paths``, of paired randomisation tests of ``full`` against ``random``,
        ``dense`` and ``graph``; ``p_draws``; ``regret``, by which the oracle is ahead of ``full``; ``questions``.
    """
    num_questions = len(choices.scores)
    if num_questions < 1 or draws < 1:
        raise ValueError(f"`choices` must hold a question and `draws` be positive, got {num_questions} and {draws}")
    routes = choose_routes(choices.scores, *thresholds)
    low, high = without_fusion
    binary = torch.where(choices.scores.double() >= (low + high) / 2, GRAPH, DENSE)
    cheapness = 1e-6 * choices.seconds / choices.seconds.max().clamp(min=1e-30)
    best = (choices.values[JUDGED] - cheapness).argmax(1)
    rates, drawn = _random_rates(choices, routes, draws, seed)
    ways = {  # share of each route for each question, and whether the adapter's scores are needed
        "dense": (_one_route(torch.full_like(routes, DENSE)), False),
        "graph": (_one_route(torch.full_like(routes, GRAPH)), False),
        "fusion": (_one_route(torch.full_like(routes, FUSION)), True),
        "random": (rates, False),
        "no fusion": (_one_route(binary), True),
        FULL: (_one_route(routes), True),
        "oracle": (_one_route(best), False),
    }
    values = {  # [n] of each measure, by way
        way: {key: torch.where(shares > 0, per_path * shares, 0).sum(1) for key, per_path in choices.values.items()}
        for way, (shares, _) in ways.items()
    }
    rows = {
        way: {
            **_means(values[way]),
            "ms": 1000 * (float((choices.seconds * shares).sum(1).mean()) + scored * choices.route_seconds),
            "routes": dict(zip(ROUTES, shares.mean(0).tolist(), strict=True)),
        }
        for way, (shares, scored) in ways.items()
    }
    full = values[FULL][JUDGED]
    as_good = int((drawn >= full.mean() - 1e-9).sum())
    p_values = {way: float(paired_randomization(full, values[way][JUDGED])) for way in ("random", "dense", "graph")}
    return {
        "questions": num_questions,
        "rows": rows,
        "p_random": p_values.pop("random"),
        "p_draws": (1 + as_good) / (1 + draws),
        "p_paths": p_values,
        "regret": float(values["oracle"][JUDGED].mean() - full.mean()),
    }


def routing_table(result: Mapping[str, Any]) -> str:
    """Lay :func:`compare_routing` out in Markdown: measures and routes in percent, milliseconds per question."""
    header = ["paths", *ROUTED_MEASURES, "ms", *ROUTES]
    lines = [
        [
            way,
            *(f"{100 * row[measure]:.1f}" if measure in row else "" for measure in ROUTED_MEASURES),
            f"{row['ms']:.1f}",
            *(f"{100 * row['routes'][route]:.0f}" for route in ROUTES),
        ]
        for way, row in result["rows"].items()
    ]
    against = ", ".join(f"{name} {p_text(p)}" for name, p in result["p_paths"].items())
    notes = (
        f"Full against random routing at the same rates in {JUDGED}: {p_text(result['p_random'])} (paired over "
        f"questions), {p_text(result['p_draws'])} (share of draws as good); against {against}. "
        f"Regret against the oracle: {100 * result['regret']:.1f} points."
    )
    return f"{markdown_table(header, lines)}\n\n{notes}"


def _one_route(routes: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(routes, len(ROUTES)).double()


def _means(values: Mapping[str, Tensor]) -> dict[str, Any]:
    counted = {measure: scores for measure, scores in values.items() if not bool(scores.isnan().all())}
    return {
        **{measure: float(scores.nanmean()) for measure, scores in counted.items()},
        "interval": {measure: bootstrap_interval(scores).tolist() for measure, scores in counted.items()},
    }


def _random_rates(choices: Choices, routes: Tensor, draws: int, seed: int) -> tuple[Tensor, Tensor]:
    """Deal the routes among the questions: how often each takes each, ``[n, 3]``, and ``[draws]`` means of JUDGED."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.zeros(choices.seconds.shape, dtype=torch.float64)
    ones, means = torch.ones(len(routes), 1, dtype=torch.float64), []
    for _ in range(draws):
        dealt = routes[torch.randperm(len(routes), generator=generator)].unsqueeze(1)
        times.scatter_add_(1, dealt, ones)
        means.append(choices.values[JUDGED].gather(1, dealt).mean())
    return times / draws, torch.stack(means)
