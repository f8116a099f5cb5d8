"""``python evaluate.py experiment=ea_benchmark``: routing of questions half of one hop and half of several."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.significance import paired_randomization
from graphrerank.models.checkpoint import load_primary
from graphrerank.pipelines.router import DENSE, GRAPH, ROUTES, choose_routes
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.ea_graphrag.complexity_adapter import AdapterManifest
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer
from graphrerank_papers.ea_graphrag.two_paths import ROUTED_MEASURES, PathRunner, TwoPaths, path_settings, question_key
from graphrerank_papers.experiments import hashed_order, write_tables

JUDGED = "PR@5"  # what the oracle chooses by, and the tests compare
FULL = "full"
WAYS = (*ROUTES, "random", "no fusion", FULL, "oracle")
PAID = ("fusion", "no fusion", FULL)  # need the adapter's scores

# the outcome of each of `ROUTES` on each of `n` questions, float64: `[n, 3]` of each of `ROUTED_MEASURES`, NaN where it
# does not count, and of `seconds`; `[n]` of `scores`, s(q), and of `route_seconds`, to score the question
Choices = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class RoutingBenchmark:
    """The job; ``conf/experiment/ea_benchmark.yaml`` describes its settings.

    Hit@k: a relevant passage in the top k (the paper's R@k); PR@5: all of them; Answer@5: a right answer in the text of
    the top 5, for questions that have one. ms: per question, many at once, without encoding the question; the adapter's
    rows include reading its syntax. Each path retrieves once per question; all rows choose between these rankings.
    Questions that the adapter was trained on, or that come twice, are left out.
    """

    checkpoint: str
    encoder: Any
    single_hop: Mapping[str, Mapping[str, Any]]
    multi_hop: Mapping[str, Mapping[str, Any]]
    dense: str
    graph: str
    stanza_folder: str | None = None
    merged: bool = False
    draws: int
    seed: int

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Compare all ways to choose the path, and write the report."""
        torch.set_num_threads(parts.num_threads)
        manifest = load_primary(self.checkpoint).manifest
        if not isinstance(manifest, AdapterManifest) or manifest.without_fusion is None:
            raise UserError(f"{self.checkpoint}: needed a trained complexity adapter, got a {manifest.model.name}")
        entries = {**self.single_hop, **self.multi_hop}
        names = {"dense": self.dense, "graph": self.graph}
        runner = PathRunner(parts, names, encoder=self.encoder, merged=entries if self.merged else None)
        _check_paths(runner, manifest)
        scorer = AdapterScorer(checkpoint=self.checkpoint, stanza_folder=self.stanza_folder)
        sets = {name: runner.read(name, entry, seed=self.seed) for name, entry in entries.items()}
        choices = {name: measure_choices(paths, scorer) for name, paths in sets.items()}
        new = _new_rows(sets, {key for keys in manifest.questions.values() for key in keys})
        rows = _halved(sets, new, [list(self.single_hop), list(self.multi_hop)], seed=self.seed)
        kept = {name: {key: column[rows[name]] for key, column in choices[name].items()} for name in sets if rows[name]}
        without_fusion = (manifest.without_fusion.low, manifest.without_fusion.high)
        compare = partial(
            compare_routing,
            thresholds=(scorer.low, scorer.high),
            without_fusion=without_fusion,
            draws=self.draws,
            seed=self.seed,
        )
        mix = {key: torch.cat([part[key] for part in kept.values()]) for key in next(iter(choices.values()))}
        tables: dict[str, list[dict[str, Any]]] = {"tests": []}
        for name, part in {"all": mix, **kept}.items():
            tables[name], tests = compare(part)
            tables["tests"].append({"questions of": name, **tests})
        tables["sets"] = [{"set": name, "left out": len(paths) - len(new[name])} for name, paths in sets.items()]
        print(write_tables(run_dir, "Routing", tables))
        return run_dir


def _check_paths(runner: PathRunner, manifest: AdapterManifest) -> None:
    """Refuse an adapter that was trained to choose between other paths."""
    for path, pipeline in runner.pipelines.items():
        if (trained := manifest.paths.get(path)) is None:
            raise UserError(f"{manifest.source}: the manifest needs an entry `paths.{path}`, found none")
        if path_settings(trained["settings"]["steps"]) != path_settings(pipeline)["steps"]:
            raise UserError(
                f"`checkpoint` was trained on {path}={trained['choice']} with settings that are not those of the "
                f"{path} path; job.{path}=NAME takes another of conf/pipeline"
            )


def measure_choices(paths: TwoPaths, scorer: AdapterScorer) -> Choices:
    """Score the questions of a data set, and measure the outcome of each path on each."""
    texts = paths.queries.texts
    scorer.score(texts[:1])  # loads the models
    begin = time.perf_counter()
    scores = scorer.score(texts)
    route_seconds = (time.perf_counter() - begin) / len(paths)
    rankings, seconds = paths.routes(scores)
    measured = [paths.measure(ranking.nodes) for ranking in rankings]
    return {
        **{measure: torch.stack([of_path[measure] for of_path in measured], dim=1) for measure in ROUTED_MEASURES},
        "seconds": seconds,
        "scores": scores,
        "route_seconds": torch.full(scores.shape, route_seconds, dtype=torch.float64),
    }


def _new_rows(sets: Mapping[str, TwoPaths], known: set[str]) -> dict[str, list[int]]:
    """Leave out repeated questions, and those that the adapter was trained or validated on, under whatever id."""
    new: dict[str, list[int]] = {name: [] for name in sets}
    for name, paths in sets.items():
        for row, text in enumerate(paths.queries.texts):
            if (key := question_key(text)) not in known:
                known.add(key)
                new[name].append(row)
        if not new[name]:
            raise UserError(f"`job` must name data sets with questions that the adapter was not trained on, got {name}")
    return new


def _halved(
    sets: Mapping[str, TwoPaths], rows: Mapping[str, Sequence[int]], halves: Sequence[Sequence[str]], *, seed: int
) -> dict[str, list[int]]:
    """Leave out questions of the larger half, by a hash of their ids, until both are equal."""
    listed = [[(name, row) for name in names for row in rows[name]] for names in halves]
    kept: dict[str, list[int]] = {name: [] for name in sets}
    for half in listed:
        order = hashed_order([f"{name} {sets[name].queries.ids[row]}" for name, row in half], seed)
        for name, row in sorted(half[position] for position in order[: min(map(len, listed))]):
            kept[name].append(row)
    return kept


def compare_routing(
    choices: Choices,
    *,
    thresholds: tuple[float, float],
    without_fusion: tuple[float, float],
    draws: int = 1000,
    seed: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    r"""Compare ways to choose the path of each question.

    ``dense``, ``graph`` and ``fusion`` send all questions one way; ``random`` deals the routes of ``full`` among the
    questions at random, averaged over draws; ``no fusion`` and ``full`` use the adapter's scores and the two
    ``thresholds`` (``no fusion``: a score between ``without_fusion`` goes where it is nearer); ``oracle`` knows which
    path is right (PR@5), and of several takes the fastest. Only the adapter's rows pay for the scoring.

    The share of draws is the permutation test of whether the routes depend on the questions:

    .. math:: p = \frac{1 + |\{d : \bar v_d \ge \bar v\}|}{1 + D}

    Returns a row per way, with its means, ``ms`` per question and the share of each route; and of PR@5 the p-values of
    paired randomisation tests of ``full`` against ``random``, ``dense`` and ``graph``, of ``draws``, and ``regret``, by
    which the oracle is ahead of ``full``.
    """
    check_counts(draws=draws)
    scores, seconds = choices["scores"], choices["seconds"]
    routes = choose_routes(scores, *thresholds)
    binary = torch.where(scores.double() >= sum(without_fusion) / 2, GRAPH, DENSE)
    best = (choices[JUDGED] - 1e-6 * seconds / seconds.max().clamp(min=1e-30)).argmax(1)  # of equals the fastest
    rates, drawn = _random_rates(choices[JUDGED], routes, draws, seed)
    routed = {way: torch.full_like(routes, route) for route, way in enumerate(ROUTES)}
    routed |= {"no fusion": binary, FULL: routes, "oracle": best}
    shares = {way: one_hot(chosen, len(ROUTES)).double() for way, chosen in routed.items()} | {"random": rates}
    values = {  # [n] of each measure, by way
        way: {key: torch.where(shares[way] > 0, choices[key] * shares[way], 0).sum(1) for key in ROUTED_MEASURES}
        for way in WAYS
    }
    rows = [
        {
            "paths": way,
            **{key: float(of.nanmean()) for key, of in values[way].items() if not bool(of.isnan().all())},
            "ms": 1000 * float(((seconds * shares[way]).sum(1) + (way in PAID) * choices["route_seconds"]).mean()),
            **{f"to {route}": share for route, share in zip(ROUTES, shares[way].mean(0).tolist(), strict=True)},
        }
        for way in WAYS
    ]
    full = values[FULL][JUDGED]
    as_good = int((drawn >= full.mean() - 1e-9).sum())
    tests = ("random", "dense", "graph")
    return rows, {
        "questions": len(scores),
        **{f"p {way}": float(paired_randomization(full, values[way][JUDGED])) for way in tests},
        "p draws": (1 + as_good) / (1 + draws),
        "regret": float(values["oracle"][JUDGED].mean() - full.mean()),
    }


def _random_rates(values: Tensor, routes: Tensor, draws: int, seed: int) -> tuple[Tensor, Tensor]:
    """Deal the routes among questions: how often each takes each, ``[n, 3]``, and each draw's mean of the values."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.zeros(values.shape, dtype=torch.float64)
    ones, means = torch.ones(len(routes), 1, dtype=torch.float64), []
    for _ in range(draws):
        dealt = routes[torch.randperm(len(routes), generator=generator)].unsqueeze(1)
        times.scatter_add_(1, dealt, ones)
        means.append(values.gather(1, dealt).mean())
    return times / draws, torch.stack(means)
