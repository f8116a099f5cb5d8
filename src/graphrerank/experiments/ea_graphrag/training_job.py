"""``python train.py model=complexity_adapter``: both paths over training questions, and the adapter that chooses."""

import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig
from torch import Tensor

from graphrerank.cli.compose import compose_group, plain_arguments, portable_config, without_paths
from graphrerank.cli.train import be_quiet, finish_loggers
from graphrerank.evaluation.tables import markdown_table
from graphrerank.experiments.ea_graphrag.path_runner import PathRunner, hashed_order, path_settings, question_key
from graphrerank.experiments.ea_graphrag.two_paths import TwoPaths, parse_rule
from graphrerank.files import atomic_path, hash_json, write_text
from graphrerank.graphs.routes import ROUTES
from graphrerank.language_models import ChatModel, remembering
from graphrerank.metrics import area_under_roc
from graphrerank.models.checkpoint import (
    MODULE_PREFIX,
    library_versions,
    load_checkpoint,
    model_name,
    read_manifest,
    write_manifest,
)
from graphrerank.syntax import FEATURES, SyntaxFeatures
from graphrerank.training import (
    AdapterSettings,
    Calibration,
    LabelledRows,
    ThresholdChoice,
    calibrate,
    choose_thresholds,
    comparison_table,
    default_classifiers,
    draw_learning_curve,
    draw_thresholds,
    fit_adapter,
    learning_curve,
    learning_curve_table,
    nested_cross_validation,
)

THRESHOLDS_PNG, CURVE_PNG = "thresholds.png", "learning_curve.png"


@dataclass(frozen=True, eq=False)
class Judged:
    """The questions of one entry of ``adapter.data``, and which path was right.

    Attributes:
        name: Of the entry.
        paths: What both paths found.
        right: ``[Q, 2]`` bool, dense and graph.
        held: ``[Q]`` bool, for validation.
        features: ``[Q, F]`` syntax.
    """

    name: str
    paths: TwoPaths
    right: Tensor
    held: Tensor
    features: Tensor

    @property
    def disagree(self) -> Tensor:
        """``[Q]`` bool, exactly one path was right."""
        return self.right[:, 0] != self.right[:, 1]


def train_adapter(cfg: DictConfig) -> Path:
    """Do all that is not done yet, and return the run folder, which is also the last line printed.

    Raises:
        ValueError: If a setting is out of range, or either path is right on no question that the other one misses.
    """
    be_quiet()
    torch.set_num_threads(cfg.num_threads)
    run_dir, plan = Path(cfg.ckpt_path or cfg.paths.run_dir), cfg.adapter
    parse_rule(plan.right)
    if not 0 < plan.validation_share < 1:
        raise ValueError(f"`adapter.validation_share` must lie in (0, 1), got {plan.validation_share}")
    settings = AdapterSettings(**plan.settings)
    groups = {path: compose_group(cfg, "pipeline", plan[path]) for path in ("dense", "graph")}
    runner = PathRunner(cfg, **groups)
    syntax = SyntaxFeatures(plan.syntax, stanza_folder=plan.stanza_folder, cache=Path(cfg.paths.cache) / "syntax")
    sets = [_judge(cfg, runner, syntax, name, entry) for name, entry in plan.data.items()]
    write_text(run_dir / "disagreements.jsonl", _disagreements(sets))
    report = [_title(plan), "## Which path was right", _agreement_table(sets)]
    write_text(run_dir / "report.md", "\n\n".join(report) + "\n")

    train, held = (_rows(sets, held, cfg.seed) for held in (False, True))
    key = hash_json([path_settings(groups[path]) for path in groups] + [_fingerprint(cfg, sets, syntax)])
    report += ["## On rows that were not seen", _cross_validation(cfg, run_dir, _rows(sets, None, cfg.seed), key)]
    write_text(run_dir / "report.md", "\n\n".join(report) + "\n")

    folder = run_dir / cfg.system
    manifest = _finished(folder, key)
    if manifest is None:
        loggers = [instantiate(logger) for logger in (cfg.logger or {}).values()]
        manifest = _train(cfg, folder, sets, (train, held), settings, loggers)
        manifest |= {
            "key": key,
            "syntax": {
                "name": syntax.name,
                "fingerprint": syntax.fingerprint,
                "feature_names": [feature.name for feature in FEATURES],
            },
            "paths": {path: {"choice": plan[path], "settings": path_settings(groups[path])} for path in groups},
            "finished": True,
        }
        write_manifest(folder, manifest)
        for logger in loggers:
            logger.log_metrics(manifest["metrics"])
        finish_loggers(loggers)
    report += ["## The adapter", _adapter_text(manifest, len(train), len(held), cfg.system)]
    text = "\n\n".join(report) + "\n"
    write_text(run_dir / "report.md", text)
    print(text)
    print(run_dir, flush=True)
    return run_dir


def _judge(cfg: DictConfig, runner: PathRunner, syntax: SyntaxFeatures, name: str, entry: Mapping[str, Any]) -> Judged:
    plan, model = cfg.adapter, _language_model(cfg)
    paths = runner.read(name, entry, seed=cfg.seed)
    right = [paths.is_right(one.nodes, plan.right, language_model=model) for one in (paths.dense, paths.graph)]
    held = torch.zeros(len(paths), dtype=torch.bool)
    order = hashed_order(paths.query_ids, cfg.seed + 1)
    held[torch.tensor(order[: round(plan.validation_share * len(order))], dtype=torch.int64)] = True
    return Judged(name, paths, torch.stack(right, dim=1), held, syntax.extract(paths.texts))


def _rows(sets: Sequence[Judged], held: bool | None, seed: int) -> LabelledRows:
    """Put disagreements together: those for training, for validation, or all; labelled 1 where the graph is right."""
    kept = [one.disagree if held is None else one.disagree & (one.held == held) for one in sets]
    features = torch.cat([one.features[rows] for one, rows in zip(sets, kept, strict=True)])
    labels = torch.cat([one.right[rows, 1] for one, rows in zip(sets, kept, strict=True)])
    return LabelledRows(features, labels.long(), seed)


def _train(
    cfg: DictConfig,
    folder: Path,
    sets: Sequence[Judged],
    rows: tuple[LabelledRows, LabelledRows],
    settings: AdapterSettings,
    loggers: Sequence[Logger],
) -> dict[str, Any]:
    """Train, calibrate, choose thresholds, and write the weights; what the manifest says of it."""
    train, held = rows
    build = instantiate(cfg.model)
    fitted = fit_adapter(build, *train.early_stopping_split, settings, loggers=loggers)
    calibration = calibrate(fitted.model, held)
    with torch.inference_mode():
        validation_auc = area_under_roc(fitted.model(held.features), held.labels)
    choice, without_fusion = _thresholds(cfg, sets, fitted.model)
    folder.mkdir(parents=True, exist_ok=True)
    draw_thresholds(folder / THRESHOLDS_PNG, choice)
    state = {f"{MODULE_PREFIX}{name}": tensor for name, tensor in fitted.model.state_dict().items()}
    with atomic_path(folder / "checkpoints" / "best.ckpt") as temporary:
        torch.save({"state_dict": state}, temporary)
    arguments = plain_arguments(cfg.model) | {
        "num_features": train.features.shape[1],
        "num_selected": len(fitted.model.selected),
        "dropout": settings.dropout,
    }
    keys = {one.name: [question_key(text) for text in one.paths.texts] for one in sets}
    return {
        "name": cfg.system,
        "model": {"name": model_name(type(fitted.model)), "arguments": arguments},
        "features": fitted.model.feature_names([feature.name for feature in FEATURES]),
        "right": cfg.adapter.right,
        "best_epoch": fitted.best_epoch,
        "calibration": asdict(calibration),
        "thresholds": asdict(choice) | {"plot": THRESHOLDS_PNG},
        "without_fusion": {name: getattr(without_fusion, name) for name in ("low", "high", "objective", "accuracy")},
        "questions": keys,
        "data": {one.name: {"entry": plain_arguments(cfg.adapter.data)[one.name], **_counts(one)} for one in sets},
        "config": portable_config(cfg),
        "versions": library_versions(),
        "metrics": {"val/auc": validation_auc, "val/accuracy": choice.accuracy},
    }


def _thresholds(cfg: DictConfig, sets: Sequence[Judged], model: Any) -> tuple[ThresholdChoice, ThresholdChoice]:
    """Choose on all validation questions, with fusion and without."""
    plan, language_model, scores, correct, seconds = cfg.adapter, _language_model(cfg), [], [], []
    for one in sets:
        with torch.inference_mode():
            found = model(one.features)
        begin = time.perf_counter()
        fused = one.paths.fused(found)
        fuse_seconds = (time.perf_counter() - begin) / len(one.paths)
        right = one.paths.is_right(fused.nodes, plan.right, language_model=language_model)
        correct.append(torch.cat([one.right, right.unsqueeze(1)], dim=1)[one.held])
        scores.append(found[one.held])
        dense, graph = one.paths.seconds
        row = torch.tensor([dense, graph, dense + graph + fuse_seconds], dtype=torch.float64)
        seconds.append(row.expand(int(one.held.sum()), -1))
    judged = torch.cat(scores), torch.cat(correct).double(), torch.cat(seconds)
    both = [choose_thresholds(*judged, price=plan.price, fuse=fuse, seed=cfg.seed) for fuse in (True, False)]
    return both[0], both[1]


def _language_model(cfg: DictConfig) -> ChatModel | None:
    """Build whom `right` may ask; its answers are kept."""
    model = cfg.adapter.language_model
    return None if model is None else remembering(instantiate(model), Path(cfg.paths.cache) / "answers")


def _cross_validation(cfg: DictConfig, run_dir: Path, rows: LabelledRows, key: str) -> str:
    """Compare classifiers on all disagreements, or read what was found before."""
    plan = cfg.adapter
    if plan.num_folds is None:
        return f"{len(rows)} disagreements; no cross-validation (`adapter.num_folds`)."
    file = (
        run_dir
        / "steps"
        / f"cross-validation-{hash_json([key, plan.num_folds, plan.num_inner_folds, list(plan.curve_shares)])}.json"
    )
    if not file.is_file() or not (run_dir / CURVE_PNG).is_file():
        begin = time.perf_counter()
        classifiers = default_classifiers(instantiate(cfg.model), top_k=int(plan.settings.get("num_selected", 85)))
        results = nested_cross_validation(
            rows, classifiers, num_folds=plan.num_folds, num_inner_folds=plan.num_inner_folds
        )
        points = learning_curve(rows, classifiers, results, shares=plan.curve_shares)
        draw_learning_curve(run_dir / CURVE_PNG, points)
        found = {"text": "\n\n".join([comparison_table(results), learning_curve_table(points)])}
        write_text(file, json.dumps(found | {"seconds": time.perf_counter() - begin}) + "\n")
    tables = json.loads(file.read_text(encoding="utf-8"))["text"]
    return (
        f"Nested cross-validation over all {len(rows)} disagreements, {plan.num_folds} folds with "
        f"{plan.num_inner_folds} inner ones.\n\n{tables}\n\n![learning curve]({CURVE_PNG})"
    )


def _finished(folder: Path, key: str) -> dict[str, Any] | None:
    """Read the manifest of an adapter that was trained of the same; None where there is none."""
    if not (folder / "manifest.json").is_file() or not (folder / "checkpoints" / "best.ckpt").is_file():
        return None
    manifest = read_manifest(folder)
    if not manifest.get("finished") or manifest.get("key") != key:
        return None
    load_checkpoint(folder / "checkpoints" / "best.ckpt")
    return manifest


def _fingerprint(cfg: DictConfig, sets: Sequence[Judged], syntax: SyntaxFeatures) -> list[Any]:
    """List what the trained adapter hangs on, besides the paths."""
    plan = plain_arguments(cfg.adapter)
    kept = {name: plan[name] for name in ("right", "validation_share", "price", "settings")}
    rows = [[one.name, one.paths.query_ids, one.right.int().tolist(), one.held.int().tolist()] for one in sets]
    return [kept, plain_arguments(cfg.model), cfg.seed, syntax.fingerprint, hash_json(rows)]


def _disagreements(sets: Sequence[Judged]) -> str:
    """Write a line of JSON for each question that exactly one path gets right."""
    lines = []
    for one in sets:
        for row in one.disagree.nonzero().flatten().tolist():
            graph_right = bool(one.right[row, 1])
            entry = {
                "data": one.name,
                "part": "validation" if one.held[row] else "training",
                "query_id": one.paths.query_ids[row],
                "text": one.paths.texts[row],
                "right": ROUTES[graph_right],
                "label": int(graph_right),
            }
            lines.append(json.dumps(entry, ensure_ascii=False) + "\n")
    return "".join(lines)


def _counts(one: Judged) -> dict[str, int]:
    dense, graph = one.right.unbind(1)
    return {
        "questions": len(one.paths),
        "validation": int(one.held.sum()),
        "both": int((dense & graph).sum()),
        "neither": int((~dense & ~graph).sum()),
        "dense_only": int((dense & ~graph).sum()),
        "graph_only": int((graph & ~dense).sum()),
    }


def _agreement_table(sets: Sequence[Judged]) -> str:
    header = ["data set", "questions", "validation", "both", "neither", "dense only", "graph only", "graph's share"]
    header += ["dense ms", "graph ms"]
    lines = []
    for one in sets:
        counts = _counts(one)
        differ = counts["dense_only"] + counts["graph_only"]
        share = f"{100 * counts['graph_only'] / differ:.0f}%" if differ else "none differ"
        times = [f"{1000 * seconds:.1f}" for seconds in one.paths.seconds]
        lines.append([one.name, *(str(number) for number in counts.values()), share, *times])
    return (
        f"{markdown_table(header, lines)}\n\nThe questions that exactly one path gets right are in "
        "`disagreements.jsonl`; the graph's share is of them. Milliseconds are per question, many at once, without "
        "encoding the question."
    )


def _title(plan: DictConfig) -> str:
    command = shlex.join(["python", "train.py", *map(without_paths, HydraConfig.get().overrides.task)])
    return (
        f"# Complexity adapter\n\n`{command}`\n\nDense path: `{plan.dense}`; graph path: `{plan.graph}`; right: "
        f"`{plan.right}`; syntax: `{plan.syntax}`."
    )


def _adapter_text(manifest: Mapping[str, Any], num_train: int, num_held: int, system: str) -> str:
    calibration, choice = Calibration(**manifest["calibration"]), manifest["thresholds"]
    header = ["on the validation questions", "right", "ms", *ROUTES]
    shares = [f"{100 * choice['shares'][route]:.0f}%" for route in ROUTES]
    lines = [["routed", f"{100 * choice['accuracy']:.1f}%", f"{1000 * choice['seconds']:.1f}", *shares]]
    alone = ", ".join(f"{route} {choice['alone'][route]:.3f}" for route in ROUTES)
    low, high = (f"{choice[name]:.3f} ({ends[0]:.3f} to {ends[1]:.3f})" for name, ends in _intervals(choice))
    return (
        f"Trained on {num_train} disagreements, best epoch {manifest['best_epoch']}; AUC on the {num_held} of "
        f"validation {manifest['metrics']['val/auc']:.3f}. Temperature {calibration.temperature:.2f}: log loss "
        f"{calibration.nll_before:.3f} to {calibration.nll_after:.3f}, calibration error {calibration.ece_before:.3f} "
        f"to {calibration.ece_after:.3f} on the rows that it was fitted on.\n\n"
        f"Thresholds, chosen on all validation questions at {choice['price']:g} of accuracy per second, with 95% "
        f"bootstrap intervals: low {low}, high {high}. Accuracy less price: routed {choice['objective']:.3f}; all "
        f"questions on one path: {alone}.\n\n{markdown_table(header, lines)}\n\n"
        f"![thresholds]({system}/{THRESHOLDS_PNG})"
    )


def _intervals(choice: Mapping[str, Any]) -> list[tuple[str, Sequence[float]]]:
    return [(name, choice[f"{name}_interval"]) for name in ("low", "high")]
