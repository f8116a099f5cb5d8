"""``python train.py experiment=complexity_adapter``: both paths on training questions, and the adapter that chooses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.checks import UserError
from graphrerank.files import atomic_path, write_json, write_json_lines
from graphrerank.metrics import area_under_roc
from graphrerank.models.checkpoint import MODULE_PREFIX, library_versions
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.parts import Parts
from graphrerank.pipelines.router import FUSION, ROUTES
from graphrerank_papers.ea_graphrag.adapter_fit import (
    AdapterSettings,
    Rows,
    ThresholdChoice,
    calibrate,
    choose_thresholds,
    early_stopping_split,
    fit_adapter,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures
from graphrerank_papers.ea_graphrag.two_paths import PathRunner, TwoPaths, parse_rule, path_settings, question_key
from graphrerank_papers.experiments import hashed_order, write_tables

PARTS = ("training", "validation")  # of the questions


@dataclass(frozen=True, eq=False)
class Judged:
    """The questions of one data set, and which path was right."""

    name: str  # of the data set in the settings
    paths: TwoPaths  # both rankings
    right: Tensor  # `[Q, 2]` bool, dense and graph
    held: Tensor  # `[Q]` bool, for validation
    features: Tensor  # `[Q, F]` syntax

    @property
    def disagree(self) -> Tensor:
        """``[Q]`` bool, exactly one path was right."""
        return self.right[:, 0] != self.right[:, 1]

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of questions: all, those for validation, and by which path was right."""
        dense, graph = self.right.unbind(1)
        kinds = {
            "validation": self.held,
            "both": dense & graph,
            "neither": ~dense & ~graph,
            "dense_only": dense & ~graph,
            "graph_only": graph & ~dense,
        }
        return {"questions": len(self.paths), **{name: int(kind.sum()) for name, kind in kinds.items()}}


@dataclass(frozen=True, kw_only=True)
class AdapterTraining:
    """The job; ``conf/experiment/complexity_adapter.yaml`` describes its settings."""

    name: str
    encoder: Any
    dense: str
    graph: str
    data: Mapping[str, Mapping[str, Any]]
    right: str
    answers: Any = None  # an `AnswerStage`, or None
    syntax: str
    stanza_folder: str | None = None
    validation_share: float
    price: float
    settings: AdapterSettings
    model: "partial[ComplexityAdapter]"
    seed: int

    def __post_init__(self) -> None:
        parse_rule(self.right)
        if not 0 < self.validation_share < 1:
            raise UserError(f"`job.validation_share` must lie in (0, 1), got {self.validation_share}")

    def __call__(self, parts: Parts, run_dir: Path) -> Path:
        """Train on the questions that exactly one path gets right; rankings and syntax of an earlier run are kept."""
        torch.set_num_threads(parts.num_threads)
        runner = PathRunner(parts, {"dense": self.dense, "graph": self.graph}, encoder=self.encoder)
        syntax = SyntaxFeatures(self.syntax, stanza_folder=self.stanza_folder, cache=parts.cache / "syntax")
        sets = [self._judge(runner, syntax, name, entry) for name, entry in self.data.items()]
        write_json_lines(run_dir / "disagreements.jsonl", disagreements(sets))
        tables = {"Which path was right": agreement_rows(sets)}
        write_tables(run_dir, "Complexity adapter", tables)

        train, held = (_disagreements(sets, held) for held in (False, True))
        manifest = self._train(run_dir / self.name, sets, train, held) | {
            "config": {"seed": self.seed},
            "syntax": {"name": syntax.name, "fingerprint": syntax.fingerprint, "feature_names": list(FEATURES)},
            "paths": {
                path: {"choice": getattr(self, path), "settings": path_settings(pipeline)}
                for path, pipeline in runner.pipelines.items()
            },
            "finished": True,
        }
        write_manifest(run_dir / self.name, manifest)
        tables |= adapter_rows(manifest, len(train[1]), len(held[1]))
        print(write_tables(run_dir, "Complexity adapter", tables))
        return run_dir

    def _judge(self, runner: PathRunner, syntax: SyntaxFeatures, name: str, entry: Mapping[str, Any]) -> Judged:
        """Retrieve the questions of an entry of ``data`` on both paths, and hold some of them out."""
        paths = runner.read(name, entry, seed=self.seed)
        rankings = (paths.dense, paths.graph)
        right = [paths.is_right(ranking.nodes, self.right, answers=self.answers) for ranking in rankings]
        held = torch.zeros(len(paths), dtype=torch.bool)
        order = hashed_order(paths.queries.ids, self.seed + 1)
        held[torch.tensor(order[: round(self.validation_share * len(order))], dtype=torch.int64)] = True
        return Judged(name, paths, torch.stack(right, dim=1), held, syntax.extract(paths.queries.texts))

    def _train(self, folder: Path, sets: Sequence[Judged], train: Rows, held: Rows) -> dict[str, Any]:
        """Train, calibrate, choose thresholds, write the weights, and return the manifest's record of it."""
        model, history = fit_adapter(self.model, *early_stopping_split(train, self.seed), self.settings)
        calibration = calibrate(model, held)
        with torch.inference_mode():
            validation_auc = area_under_roc(model(held[0]), held[1])
        choice, without_fusion = self._thresholds(sets, model)
        losses = [epoch["val/loss"] for epoch in history]
        write_json(folder / "history.json", {"epochs": history})
        best = folder / "checkpoints" / "best.ckpt"
        best.parent.mkdir(parents=True, exist_ok=True)
        state = {f"{MODULE_PREFIX}{name}": tensor for name, tensor in model.state_dict().items()}
        with atomic_path(best) as temporary:
            torch.save({"state_dict": state}, temporary)
        numbers = {"num_features": len(FEATURES), "num_selected": len(model.selected), "dropout": self.settings.dropout}
        return {
            "name": self.name,
            "model": {"name": model_name(type(model)), "arguments": self.model.keywords | numbers},
            "features": [FEATURES[column] for column in model.selected.tolist()],
            "right": self.right,
            "best_epoch": 1 + losses.index(min(losses)),
            "calibration": calibration,
            "thresholds": asdict(choice),
            "without_fusion": asdict(without_fusion),
            "questions": {judged.name: [question_key(text) for text in judged.paths.queries.texts] for judged in sets},
            "data": {judged.name: {"entry": dict(self.data[judged.name]), **judged.counts} for judged in sets},
            "versions": library_versions(),
            "metrics": {"val/auc": validation_auc, "val/accuracy": choice.accuracy},
        }

    def _thresholds(self, sets: Sequence[Judged], model: ComplexityAdapter) -> tuple[ThresholdChoice, ThresholdChoice]:
        """Choose on all validation questions, with fusion and without."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []  # scores, correctness and seconds of a data set
        for judged in sets:
            with torch.inference_mode():
                predicted = model(judged.features)
            rankings, seconds = judged.paths.routes(predicted)
            right = judged.paths.is_right(rankings[FUSION].nodes, self.right, answers=self.answers)
            correct = torch.cat([judged.right, right.unsqueeze(1)], dim=1)
            parts.append((predicted[judged.held], correct[judged.held], seconds[judged.held]))
        scores, correct, seconds = map(torch.cat, zip(*parts, strict=True))
        choose = partial(choose_thresholds, scores, correct, seconds, price=self.price)
        return choose(fuse=True), choose(fuse=False)


def _disagreements(sets: Sequence[Judged], held: bool) -> Rows:
    """Join disagreements, those for training or for validation; labelled 1 where the graph is right."""
    kept = [judged.disagree & (judged.held == held) for judged in sets]
    parts = ((judged.features[rows], judged.right[rows, 1].long()) for judged, rows in zip(sets, kept, strict=True))
    features, labels = map(torch.cat, zip(*parts, strict=True))
    if (classes := set(labels.tolist())) != {0, 1}:
        raise UserError(
            f"`labels` must hold both classes, 0 and 1, got {sorted(classes)} in {len(labels)} rows; where one path is "
            "always right there is nothing to route"
        )
    return features, labels


def disagreements(sets: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """Describe each question that exactly one path gets right."""
    for judged in sets:
        for row in judged.disagree.nonzero().flatten().tolist():
            part, right = PARTS[int(judged.held[row])], ROUTES[int(judged.right[row, 1])]
            question = {"query_id": judged.paths.queries.ids[row], "text": judged.paths.queries.texts[row]}
            yield {"data": judged.name, "part": part, **question, "right": right}


def agreement_rows(sets: Sequence[Judged]) -> list[dict[str, Any]]:
    """Count the questions on which each path was right; ms are per question, many at once, without encoding it."""
    rows = []
    for judged in sets:
        counts = {name.replace("_", " "): count for name, count in judged.counts.items()}
        differ = counts["dense only"] + counts["graph only"]
        share = counts["graph only"] / differ if differ else None  # of those that exactly one path gets right
        times = {f"{path} ms": 1000 * time for path, time in zip(ROUTES, judged.paths.seconds, strict=False)}
        rows.append({"data set": judged.name, **counts, "graph's share": share, **times})
    return rows


def adapter_rows(manifest: Mapping[str, Any], num_train: int, num_held: int) -> dict[str, list[dict[str, Any]]]:
    """Describe how the adapter was trained, and what its thresholds give."""
    calibration, choice = manifest["calibration"], manifest["thresholds"]
    counts = {"disagreements for training": num_train, "for validation": num_held, "best epoch": manifest["best_epoch"]}
    adapter = {**counts, "AUC on validation": manifest["metrics"]["val/auc"]}
    adapter |= {name.replace("_", " "): number for name, number in calibration.items()}
    names = ("low", "high", "price", "accuracy", "seconds", "objective")
    routes = [{"path": route, "share": choice["shares"][route], "alone": choice["alone"][route]} for route in ROUTES]
    return {"The adapter": [adapter], "Its thresholds": [{name: choice[name] for name in names}], "Its routes": routes}
