"""``python evaluate.py experiment=ea_benchmark``: routing of questions half of one hop and half of several."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.files import write_json, write_text
from graphrerank.models.checkpoint import load_primary
from graphrerank.parts import Parts
from graphrerank_papers.ea_graphrag.adapter_scorer import AdapterScorer
from graphrerank_papers.ea_graphrag.complexity_adapter import AdapterManifest
from graphrerank_papers.ea_graphrag.routing import Choices, compare_routing, join_choices, routing_table, weigh_choices
from graphrerank_papers.ea_graphrag.two_paths import PathRunner, TwoPaths, path_settings, question_key
from graphrerank_papers.hashed_order import hashed_order

HALVES = ("single_hop", "multi_hop")


@dataclass(frozen=True, eq=False)
class TestSet:
    """The questions of one data set of the benchmark."""

    half: str  # `single_hop` or `multi_hop`
    paths: TwoPaths  # the rankings of both paths for all its questions
    choices: Choices  # what each path gives
    kept: Tensor  # `[q]` int64, the questions that are in the benchmark


@dataclass(frozen=True, kw_only=True)
class RoutingBenchmark:
    """The job; ``conf/experiment/ea_benchmark.yaml`` describes its settings."""

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

    def __call__(self, parts: Parts, run_dir: Path) -> Path:
        """Compare all ways to choose the path, and write the report."""
        torch.set_num_threads(parts.num_threads)
        manifest = load_primary(self.checkpoint).manifest
        if not isinstance(manifest, AdapterManifest) or manifest.without_fusion is None:
            raise ValueError(f"{self.checkpoint}: needed a trained complexity adapter, got a {manifest.model.name}")
        merged = {**self.single_hop, **self.multi_hop} if self.merged else None
        names = {"dense": self.dense, "graph": self.graph}
        runner = PathRunner(parts, names, encoder=self.encoder, merged=merged)
        _check_paths(runner, manifest)
        scorer = AdapterScorer(checkpoint=self.checkpoint, stanza_folder=self.stanza_folder)
        sets = {
            name: _read(runner, scorer, half, name, entry, seed=self.seed)
            for half in HALVES
            for name, entry in getattr(self, half).items()
        }
        sets = _only_new(sets, manifest.questions)
        known = {name: len(test_set.paths) - len(test_set.kept) for name, test_set in sets.items()}
        sets = _halved(sets, seed=self.seed)
        low, high = manifest.without_fusion.low, manifest.without_fusion.high

        def compare(choices: Choices) -> dict[str, Any]:
            thresholds = (scorer.low, scorer.high)
            return compare_routing(
                choices, thresholds=thresholds, without_fusion=(low, high), draws=self.draws, seed=self.seed
            )

        kept = {name: test_set.choices.take(test_set.kept) for name, test_set in sets.items()}
        content = {
            "mix": compare(join_choices(list(kept.values()))),
            "sets": {name: compare(choices) for name, choices in kept.items()},
            "left_out_as_known": known,
            "thresholds": {"low": scorer.low, "high": scorer.high, "without_fusion": [low, high]},
        }
        write_json(run_dir / "metrics.json", content)
        write_text(run_dir / "report.md", report := _report(content, merged=self.merged))
        print(report)
        return run_dir


def _check_paths(runner: PathRunner, manifest: AdapterManifest) -> None:
    """Refuse an adapter that was trained to choose between other paths."""
    for path, pipeline in runner.pipelines.items():
        if (trained := manifest.paths.get(path)) is None:
            raise ValueError(f"{manifest.source}: the manifest needs an entry `paths.{path}`, found none")
        if path_settings(trained["settings"]["steps"]) != path_settings(pipeline)["steps"]:
            raise ValueError(
                f"`checkpoint` was trained on {path}={trained['choice']} with settings that are not those of the "
                f"{path} path; job.{path}=NAME takes another of conf/pipeline"
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
    return TestSet(half, paths, choices, torch.arange(len(paths)))


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


def _report(content: Mapping[str, Any], *, merged: bool) -> str:
    counts = ", ".join(f"{name} {result['questions']}" for name, result in content["sets"].items())
    parts = [
        "# Routing",
        f"Half of the questions need one hop, the other half several: {counts}. "
        f"{'All are searched for in one corpus of all' if merged else 'Each data set is searched in its own corpus'}; "
        f"{sum(content['left_out_as_known'].values())} questions that the adapter was trained on, or that come twice, "
        "are left out. Hit@k: a relevant passage in the top k (the paper's R@k); PR@5: all of them; Answer@5: a right "
        "answer in the text of the top 5, for questions that have one. ms: per question, many at once, without "
        "encoding the question; the adapter's rows include reading its syntax. Each path retrieves once per question; "
        "all rows choose between these rankings.",
        routing_table(content["mix"]),
        *(f"## {name}\n\n{routing_table(result)}" for name, result in content["sets"].items()),
    ]
    return "\n\n".join(parts) + "\n"
