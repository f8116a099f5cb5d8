"""``python evaluate.py experiment=ea_benchmark``: the router on questions half of one hop and half of several."""

import time
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.cli.job_session import Group, JobSession
from graphrerank.evaluation.tables import markdown_table
from graphrerank.files import write_json, write_text
from graphrerank.graphs import Queries
from graphrerank.graphs.routes import GRAPH, choose_routes
from graphrerank.models.checkpoint import load_primary
from graphrerank_papers.ea_graphrag.adapter_manifest import AdapterManifest
from graphrerank_papers.ea_graphrag.adapter_scorer import AdapterScorer
from graphrerank_papers.ea_graphrag.path_runner import PathRunner, data_of, path_settings, question_key
from graphrerank_papers.ea_graphrag.routing import (
    JUDGED,
    Choices,
    RoutedResult,
    compare_routing,
    join_choices,
    routing_table,
    weigh_choices,
)
from graphrerank_papers.ea_graphrag.two_paths import TwoPaths
from graphrerank_papers.hashed_order import hashed_order

HALVES = ("single_hop", "multi_hop")
COMPARED_DEPTH = 5  # of the router's own rankings, with those composed of each path's


@dataclass(frozen=True, eq=False)
class TestSet:
    """The questions of one data set of the benchmark."""

    half: str  # `single_hop` or `multi_hop`
    data: str  # the data set, as `conf/data` or a folder names it
    paths: TwoPaths  # the rankings of both paths for all its questions
    scores: Tensor  # `[Q]`, s(q)
    choices: Choices  # what each path gives
    kept: Tensor  # `[q]` int64, the questions that are in the benchmark


@dataclass(frozen=True, kw_only=True)
class RoutingBenchmark:
    """The job; ``conf/experiment/ea_benchmark.yaml`` describes its settings."""

    checkpoint: str
    single_hop: Mapping[str, Mapping[str, Any]]
    multi_hop: Mapping[str, Mapping[str, Any]]
    graph: str | None = None
    merged: bool = False
    draws: int
    seed: int

    def __call__(self, session: JobSession) -> Path:
        """Compare all ways to choose the path, run the router itself, and write the report."""
        torch.set_num_threads(session.num_threads)
        pipeline, router = self._router(session)
        paths = {name: deepcopy(pipeline) for name in ("dense", "graph")}
        for name, path in paths.items():
            path["steps"] = router[name]
        merged = {**self.single_hop, **self.multi_hop} if self.merged else None
        runner = PathRunner(session, **paths, merged=merged)
        scorer: AdapterScorer = session.build(router["adapter"])
        manifest = load_primary(self.checkpoint).manifest
        if not isinstance(manifest, AdapterManifest) or manifest.without_fusion is None:
            raise ValueError(f"{self.checkpoint}: needed a trained complexity adapter, got a {manifest.model.name}")
        _check_paths(runner, manifest)
        low, high = manifest.without_fusion.low, manifest.without_fusion.high

        sets = {
            name: _read(runner, scorer, half, name, entry, seed=self.seed)
            for half in HALVES
            for name, entry in getattr(self, half).items()
        }
        sets = _only_new(sets, manifest.questions)
        known = {name: len(test_set.paths) - len(test_set.kept) for name, test_set in sets.items()}
        sets = _halved(sets, seed=self.seed)

        def compare(choices: Choices) -> RoutedResult:
            return compare_routing(
                choices,
                thresholds=(scorer.low, scorer.high),
                without_fusion=(low, high),
                draws=self.draws,
                seed=self.seed,
            )

        results = {name: compare(test_set.choices.take(test_set.kept)) for name, test_set in sets.items()}
        mix = compare(join_choices([test_set.choices.take(test_set.kept) for test_set in sets.values()]))
        real = {name: _run_router(runner, pipeline, scorer, test_set) for name, test_set in sets.items()}
        content = {
            "mix": mix.to_json(),
            "sets": {name: result.to_json() for name, result in results.items()},
            "router": real,
            "left_out_as_known": known,
            "thresholds": {"low": scorer.low, "high": scorer.high, "without_fusion": [low, high]},
        }
        write_json(session.run_dir / "metrics.json", content)
        report = _report(session.command, sets, known, mix, results, real, merged=self.merged)
        write_text(session.run_dir / "report.md", report)
        print(report)
        return session.run_dir

    def _router(self, session: JobSession) -> tuple[Group, Group]:
        """Return the chosen pipeline and its router, with this checkpoint and graph path."""
        pipeline = session.chosen("pipeline")
        router = next((step for step in (pipeline or {}).get("steps", ()) if "adapter" in step), None)
        if pipeline is None or router is None:
            raise ValueError("`pipeline` must have a step with an `adapter` (pipeline=ea_graphrag), got none")
        if self.graph is not None:
            router["graph"] = session.group("pipeline", self.graph)["steps"]
        router["adapter"]["checkpoint"] = self.checkpoint
        router["adapter"]["cache"] = None  # a cache would hide the time that reading syntax takes
        return pipeline, router


def _check_paths(runner: PathRunner, manifest: AdapterManifest) -> None:
    """Refuse an adapter that was trained to choose between other paths."""
    for path, group in runner.groups.items():
        if (trained := manifest.paths.get(path)) is None:
            raise ValueError(f"{manifest.source}: the manifest needs an entry `paths.{path}`, found none")
        if trained["settings"]["steps"] != path_settings(group)["steps"]:
            raise ValueError(
                f"`checkpoint` was trained on {path}={trained['choice']} with settings that are not those of the "
                f"router's {path} path; job.graph=NAME takes another of conf/pipeline"
            )


def _read(
    runner: PathRunner, scorer: AdapterScorer, half: str, name: str, entry: Mapping[str, Any], *, seed: int
) -> TestSet:
    paths = runner.read(name, entry, seed=seed)
    scorer.score(paths.texts[:1])  # loads the models
    begin = time.perf_counter()
    scores = scorer.score(paths.texts)
    middle = time.perf_counter()
    fused = paths.fused(scores)
    fuse_seconds, route_seconds = time.perf_counter() - middle, middle - begin
    choices = weigh_choices(
        paths,
        scores,
        fused_nodes=fused.nodes,
        fuse_seconds=fuse_seconds / len(paths),
        route_seconds=route_seconds / len(paths),
    )
    return TestSet(half, data_of(name, entry), paths, scores, choices, torch.arange(len(paths)))


def _only_new(sets: Mapping[str, TestSet], trained: Mapping[str, Sequence[str]]) -> dict[str, TestSet]:
    """Leave out repeated questions, and those that the adapter was trained or validated on, under whatever id."""
    known = {key for keys in trained.values() for key in keys}
    new = {}
    for name, test_set in sets.items():
        kept = []
        for row, text in enumerate(test_set.paths.texts):
            if (key := question_key(text)) not in known:
                known.add(key)
                kept.append(row)
        if not kept:
            raise ValueError(
                f"`job` must name data sets with questions that the adapter was not trained on, got {name}"
            )
        new[name] = replace(test_set, kept=torch.tensor(kept))
    return new


def _halved(sets: Mapping[str, TestSet], *, seed: int) -> dict[str, TestSet]:
    """Leave out questions of the larger half, by a hash of their ids, until both are equal."""
    rows = {
        half: [
            (name, row) for name, test_set in sets.items() if test_set.half == half for row in test_set.kept.tolist()
        ]
        for half in HALVES
    }
    size = min(len(listed) for listed in rows.values())
    kept: dict[str, list[int]] = {name: [] for name in sets}
    for listed in rows.values():
        order = hashed_order([f"{name} {sets[name].paths.query_ids[row]}" for name, row in listed], seed)
        for name, row in (listed[position] for position in order[:size]):
            kept[name].append(row)
    return {
        name: replace(test_set, kept=torch.tensor(sorted(kept[name]))) for name, test_set in sets.items() if kept[name]
    }


def _run_router(runner: PathRunner, group: Group, scorer: AdapterScorer, test_set: TestSet) -> dict[str, float]:
    """Let the router itself retrieve for the questions, and compare with the rankings composed of each path's."""
    (prepared, build), paths = runner.prepare(test_set.data), test_set.paths
    selected = paths.queries[test_set.kept]
    ids, texts = ([strings[row] for row in test_set.kept.tolist()] for strings in (paths.query_ids, paths.texts))
    vectors = None if prepared.query_vectors is None else prepared.query_vectors[selected]
    pipeline, queries = build(group), Queries(ids, texts, vectors)
    pipeline.retrieve(queries.block(0, 1))  # loads the models
    begin = time.perf_counter()
    routed = pipeline.retrieve(queries)
    seconds = (time.perf_counter() - begin) / len(queries)
    routes = choose_routes(test_set.scores, scorer.low, scorer.high)
    fused = paths.fused(test_set.scores)
    every = torch.stack([paths.dense.nodes, paths.graph.nodes, fused.nodes], dim=1)  # [Q, 3, K]
    expected = every[torch.arange(len(paths)), routes][test_set.kept]
    assert routed.routes is not None
    nodes = routed.ranking.nodes
    padded = torch.full_like(paths.dense.nodes, -1)
    padded[test_set.kept] = nodes
    return {
        "questions": len(queries),
        "same_route": float((routed.routes == routes[test_set.kept]).double().mean()),
        "same_top": float((nodes[:, :COMPARED_DEPTH] == expected[:, :COMPARED_DEPTH]).all(1).double().mean()),
        JUDGED: float(paths.measure(padded)[JUDGED][test_set.kept].mean()),
        "ms": 1000 * seconds,
        "graph_share": float((routed.routes == GRAPH).double().mean()),
    }


def _report(
    command: str,
    sets: Mapping[str, TestSet],
    known: Mapping[str, int],
    mix: RoutedResult,
    results: Mapping[str, RoutedResult],
    real: Mapping[str, Mapping[str, float]],
    *,
    merged: bool,
) -> str:
    counts = ", ".join(f"{name} {len(test_set.kept)}" for name, test_set in sets.items())
    lines = [
        [
            name,
            f"{entry['questions']:.0f}",
            *(f"{100 * entry[key]:.1f}" for key in ("same_route", "same_top", JUDGED)),
            f"{100 * float(results[name].rows['full'].values[JUDGED].mean()):.1f}",
            f"{entry['ms']:.1f}",
            f"{1000 * results[name].rows['full'].seconds:.1f}",
        ]
        for name, entry in real.items()
    ]
    header = ["router itself", "questions", "same route", f"same top {COMPARED_DEPTH}"]
    header += [JUDGED, f"{JUDGED} above", "ms", "ms above"]
    parts = [
        "# Routing",
        f"`{command}`",
        f"Half of the questions need one hop, the other half several: {counts}. "
        f"{'All are searched for in one corpus of all' if merged else 'Each data set is searched in its own corpus'}; "
        f"{sum(known.values())} questions that the adapter was trained on, or that come twice, are left out. "
        "Hit@k: a relevant passage in the top k (the paper's R@k); PR@5: all of them; Answer@5: a right answer in the "
        "text of the top 5, for questions that have one. ms: per question, many at once, without encoding the "
        "question; the adapter's rows include reading its syntax. Each path retrieves once per question, and all rows "
        "choose between these rankings.",
        routing_table(mix),
        "The router itself, over the same questions (percent; milliseconds per question):",
        markdown_table(header, lines),
        *(f"## {name}\n\n{routing_table(result)}" for name, result in results.items()),
    ]
    return "\n\n".join(parts) + "\n"
