"""``python train.py model=complexity_adapter``: both paths over training questions, and the adapter that chooses."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.cli.job_session import TrainingSession
from graphrerank.files import atomic_path, hash_json, write_text
from graphrerank.metrics import area_under_roc
from graphrerank.models.checkpoint import MODULE_PREFIX, library_versions, load_checkpoint
from graphrerank.models.manifest import read_manifest, write_manifest
from graphrerank.models.registry import model_name
from graphrerank_papers.ea_graphrag.adapter_calibration import calibrate
from graphrerank_papers.ea_graphrag.adapter_classifiers import default_classifiers
from graphrerank_papers.ea_graphrag.adapter_fit import AdapterSettings, fit_adapter
from graphrerank_papers.ea_graphrag.adapter_page import (
    CURVE_PNG,
    THRESHOLDS_PNG,
    Judged,
    adapter_text,
    agreement_table,
    disagreements,
)
from graphrerank_papers.ea_graphrag.adapter_rows import LabelledRows
from graphrerank_papers.ea_graphrag.adapter_thresholds import ThresholdChoice, choose_thresholds, draw_thresholds
from graphrerank_papers.ea_graphrag.adapter_validation import (
    comparison_table,
    draw_learning_curve,
    learning_curve,
    learning_curve_table,
    nested_cross_validation,
)
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from graphrerank_papers.ea_graphrag.path_runner import PathRunner, path_settings, question_key
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES
from graphrerank_papers.ea_graphrag.syntax.syntax_features import SyntaxFeatures
from graphrerank_papers.ea_graphrag.two_paths import parse_rule
from graphrerank_papers.hashed_order import hashed_order
from graphrerank_papers.steps import do_step, step_file


@dataclass(frozen=True, kw_only=True)
class AdapterTraining:
    """The job; ``conf/recipe/complexity_adapter.yaml`` describes its settings."""

    system: str
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
    num_folds: int | None = None
    num_inner_folds: int
    curve_shares: Sequence[float]
    seed: int

    def __post_init__(self) -> None:
        parse_rule(self.right)
        if not 0 < self.validation_share < 1:
            raise ValueError(f"`job.validation_share` must lie in (0, 1), got {self.validation_share}")

    def __call__(self, session: TrainingSession) -> Path:
        """Do all that is not done yet; refuse paths of which neither is right where the other is wrong."""
        torch.set_num_threads(session.num_threads)
        run_dir = session.resumed or session.run_dir
        groups = {path: session.group("pipeline", getattr(self, path)) for path in ("dense", "graph")}
        settings = {path: path_settings(group) for path, group in groups.items()}
        runner = PathRunner(session, **groups)
        syntax = SyntaxFeatures(self.syntax, stanza_folder=self.stanza_folder, cache=session.cache / "syntax")
        sets = [self._judge(runner, syntax, name, entry) for name, entry in self.data.items()]
        write_text(run_dir / "disagreements.jsonl", disagreements(sets))
        report = [self._title(session.command), "## Which path was right", agreement_table(sets)]
        write_text(run_dir / "report.md", "\n\n".join(report) + "\n")

        train, held = (self._rows(sets, held) for held in (False, True))
        key = hash_json([*settings.values(), session.config["trainer"], self._decisive(sets, syntax)])
        report += ["## On rows that were not seen", self._cross_validation(run_dir, self._rows(sets, None), key)]
        write_text(run_dir / "report.md", "\n\n".join(report) + "\n")

        folder = run_dir / self.system
        manifest = _finished(folder, key)
        if manifest is None:
            trainer = session.trainer(run_dir)
            manifest = self._train(folder, sets, (train, held), trainer)
            manifest |= {
                "key": key,
                "config": session.config,
                "syntax": {
                    "name": syntax.name,
                    "fingerprint": syntax.fingerprint,
                    "feature_names": list(FEATURES),
                },
                "paths": {path: {"choice": getattr(self, path), "settings": settings[path]} for path in groups},
                "finished": True,
            }
            write_manifest(folder, manifest)
            for logger in trainer.loggers:
                logger.log_metrics(manifest["metrics"])
        report += ["## The adapter", adapter_text(manifest, len(train), len(held), self.system)]
        text = "\n\n".join(report) + "\n"
        write_text(run_dir / "report.md", text)
        print(text)
        return run_dir

    def _judge(
        self,
        runner: PathRunner,
        syntax: SyntaxFeatures,
        name: str,
        entry: Mapping[str, Any],
    ) -> Judged:
        """Run both paths on the questions of an entry of ``data``, and hold some of them out."""
        paths = runner.read(name, entry, seed=self.seed)
        right = [
            paths.is_right(ranking.nodes, self.right, answers=self.answers) for ranking in (paths.dense, paths.graph)
        ]
        held = torch.zeros(len(paths), dtype=torch.bool)
        order = hashed_order(paths.query_ids, self.seed + 1)
        held[torch.tensor(order[: round(self.validation_share * len(order))], dtype=torch.int64)] = True
        return Judged(name, paths, torch.stack(right, dim=1), held, syntax.extract(paths.texts))

    def _rows(self, sets: Sequence[Judged], held: bool | None) -> LabelledRows:
        """Join disagreements: those for training, for validation, or all; labelled 1 where the graph is right."""
        kept = [judged.disagree if held is None else judged.disagree & (judged.held == held) for judged in sets]
        features = torch.cat([judged.features[rows] for judged, rows in zip(sets, kept, strict=True)])
        labels = torch.cat([judged.right[rows, 1] for judged, rows in zip(sets, kept, strict=True)])
        return LabelledRows(features, labels.long(), self.seed)

    def _train(
        self,
        folder: Path,
        sets: Sequence[Judged],
        rows: tuple[LabelledRows, LabelledRows],
        trainer: Any,
    ) -> dict[str, Any]:
        """Train, calibrate, choose thresholds, write the weights, and return the manifest's record of it."""
        train, held = rows
        best = folder / "checkpoints" / "best.ckpt"
        best.unlink(missing_ok=True)
        fitted = fit_adapter(self.model, *train.early_stopping_split, self.settings, trainer=trainer)
        calibration = calibrate(fitted.model, held)
        with torch.inference_mode():
            validation_auc = area_under_roc(fitted.model(held.features), held.labels)
        choice, without_fusion = self._thresholds(sets, fitted.model)
        folder.mkdir(parents=True, exist_ok=True)
        draw_thresholds(folder / THRESHOLDS_PNG, choice)
        state = {f"{MODULE_PREFIX}{name}": tensor for name, tensor in fitted.model.state_dict().items()}
        written = torch.load(best, weights_only=True) if best.is_file() else {}  # by Lightning, before calibration
        with atomic_path(best) as temporary:
            torch.save(written | {"state_dict": state}, temporary)
        arguments = self.model.keywords | {
            "num_features": train.features.shape[1],
            "num_selected": len(fitted.model.selected),
            "dropout": self.settings.dropout,
        }
        return {
            "name": self.system,
            "model": {"name": model_name(type(fitted.model)), "arguments": arguments},
            "features": fitted.model.feature_names(list(FEATURES)),
            "right": self.right,
            "best_epoch": fitted.best_epoch,
            "calibration": asdict(calibration),
            "thresholds": asdict(choice) | {"plot": THRESHOLDS_PNG},
            "without_fusion": {
                name: getattr(without_fusion, name) for name in ("low", "high", "objective", "accuracy")
            },
            "questions": {judged.name: [question_key(text) for text in judged.paths.texts] for judged in sets},
            "data": {judged.name: {"entry": dict(self.data[judged.name]), **judged.counts} for judged in sets},
            "versions": library_versions(),
            "metrics": {"val/auc": validation_auc, "val/accuracy": choice.accuracy},
        }

    def _thresholds(self, sets: Sequence[Judged], model: ComplexityAdapter) -> tuple[ThresholdChoice, ThresholdChoice]:
        """Choose on all validation questions, with fusion and without."""
        scores: list[Tensor] = []
        correct: list[Tensor] = []
        seconds: list[Tensor] = []
        for judged in sets:
            with torch.inference_mode():
                predicted = model(judged.features)
            begin = time.perf_counter()
            fused = judged.paths.fused(predicted)
            fuse_seconds = (time.perf_counter() - begin) / len(judged.paths)
            right = judged.paths.is_right(fused.nodes, self.right, answers=self.answers)
            correct.append(torch.cat([judged.right, right.unsqueeze(1)], dim=1)[judged.held])
            scores.append(predicted[judged.held])
            dense, graph = judged.paths.seconds
            row = torch.tensor([dense, graph, dense + graph + fuse_seconds], dtype=torch.float64)
            seconds.append(row.expand(int(judged.held.sum()), -1))
        measured = torch.cat(scores), torch.cat(correct).double(), torch.cat(seconds)
        both = [choose_thresholds(*measured, price=self.price, fuse=fuse, seed=self.seed) for fuse in (True, False)]
        return both[0], both[1]

    def _cross_validation(self, run_dir: Path, rows: LabelledRows, key: str) -> str:
        """Compare classifiers on all disagreements, or read the result of an earlier run."""
        num_folds = self.num_folds
        if num_folds is None:
            return f"{len(rows)} disagreements; no cross-validation (`job.num_folds`)."

        def compare() -> dict[str, Any]:
            begin = time.perf_counter()
            classifiers = default_classifiers(self.model, top_k=self.settings.num_selected)
            results = nested_cross_validation(
                rows, classifiers, num_folds=num_folds, num_inner_folds=self.num_inner_folds
            )
            points = learning_curve(rows, classifiers, results, shares=self.curve_shares)
            draw_learning_curve(run_dir / CURVE_PNG, points)
            text = "\n\n".join([comparison_table(results), learning_curve_table(points)])
            return {"text": text, "seconds": time.perf_counter() - begin}

        decisive = [key, num_folds, self.num_inner_folds, list(self.curve_shares)]
        file = step_file(run_dir, "cross-validation", decisive)
        if not (run_dir / CURVE_PNG).is_file():
            file.unlink(missing_ok=True)
        return (
            f"Nested cross-validation over all {len(rows)} disagreements, {num_folds} folds with "
            f"{self.num_inner_folds} inner ones.\n\n{do_step(file, compare)['text']}\n\n![learning curve]({CURVE_PNG})"
        )

    def _decisive(self, sets: Sequence[Judged], syntax: SyntaxFeatures) -> list[Any]:
        """List everything that the trained adapter depends on, besides the paths."""
        rows = [
            [judged.name, judged.paths.query_ids, judged.right.int().tolist(), judged.held.int().tolist()]
            for judged in sets
        ]
        plan = [self.right, self.validation_share, self.price, asdict(self.settings), self.model.keywords, self.seed]
        return [*plan, syntax.fingerprint, hash_json(rows)]

    def _title(self, command: str) -> str:
        return (
            f"# Complexity adapter\n\n`{command}`\n\nDense path: `{self.dense}`; graph path: `{self.graph}`; right: "
            f"`{self.right}`; syntax: `{self.syntax}`."
        )


def _finished(folder: Path, key: str) -> dict[str, Any] | None:
    """Read the manifest of an adapter that was trained on the same rows with the same settings; None without one."""
    if not (folder / "manifest.json").is_file() or not (folder / "checkpoints" / "best.ckpt").is_file():
        return None
    manifest = dict(read_manifest(folder).content)
    if not manifest.get("finished") or manifest.get("key") != key:
        return None
    load_checkpoint(folder / "checkpoints" / "best.ckpt")
    return manifest
