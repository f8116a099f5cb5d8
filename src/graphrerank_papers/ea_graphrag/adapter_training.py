"""``python train.py experiment=complexity_adapter``: both paths on training questions, and the adapter that chooses."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory
from typing import Any, cast

import torch
from torch import Tensor

from graphrerank.config.components import ComponentFactory
from graphrerank.metrics import area_under_roc
from graphrerank.models.checkpoint import MODULE_PREFIX, library_versions, load_checkpoint
from graphrerank.models.manifest import write_manifest
from graphrerank.models.registry import model_name
from graphrerank.pipelines.router import FUSION, ROUTES
from graphrerank.training.session import TrainingPlan, TrainingSession
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import atomic_path, hash_json, write_json, write_json_lines
from graphrerank.utils.progress import advance, progress_bar
from graphrerank_papers.ea_graphrag.adapter_fit import (
    AdapterSettings,
    ThresholdChoice,
    build_adapter,
    calibrate_temperature,
    choose_thresholds,
    early_stopping_split,
    stratified_folds,
)
from graphrerank_papers.ea_graphrag.adapter_module import AdapterDataModule, AdapterModule, AdapterRows
from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures
from graphrerank_papers.ea_graphrag.two_paths import PathRunner, TwoPaths, parse_rule, path_settings, question_key
from graphrerank_papers.experiments import do_step, hashed_order, step_file, write_tables

PARTS = ("training", "validation")  # of the questions
# entries of the manifest that a resumed training must have in common with its run
DECISIVE = ("data", "paths", "right", "syntax", "model", "features", "training")
CROSS_VALIDATED = ("AUC", "accuracy", "larger class")


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
    module: "partial[AdapterModule]"
    batch_size: int
    folds: int
    seed: int

    def __post_init__(self) -> None:
        parse_rule(self.right)
        if not 0 < self.validation_share < 1:
            raise UserError(f"`job.validation_share` must lie in (0, 1), got {self.validation_share}")
        if self.folds < 0 or self.folds == 1:
            raise UserError(f"`job.folds` must be 0 or at least 2, got {self.folds}")

    def __call__(self, parts: ComponentFactory, run_dir: Path, training: TrainingPlan) -> Path:
        """Train on the questions that exactly one path gets right; rankings and syntax of an earlier run are reused.

        Args:
            parts: Builds the paths' parts, and names the caches.
            run_dir: Folder of the run.
            training: Trainer, callbacks, loggers and the run to resume.

        Returns:
            The run folder.
        """
        torch.set_num_threads(parts.num_threads)
        runner = PathRunner(parts, {"dense": self.dense, "graph": self.graph}, encoder=self.encoder)
        syntax = SyntaxFeatures(self.syntax, stanza_folder=self.stanza_folder, cache=parts.cache / "syntax")
        sets = [self._judge(runner, syntax, name, entry) for name, entry in self.data.items()]
        write_json_lines(run_dir / "disagreements.jsonl", disagreements(sets))
        tables = {"Which path was right": agreement_rows(sets)}
        write_tables(run_dir, "Complexity adapter", tables)

        train, held = (_disagreements(sets, held) for held in (False, True))
        if self.folds:
            stratified_folds(train, self.folds, self.seed)  # too many folds are refused before training
        session = training.session(run_dir, self.name)
        described = self._describe(runner, syntax, sets) | {"config": dict(training.config) or {"seed": self.seed}}
        model, manifest = self._train(session, train, described, self.settings)
        if session.history:
            write_json(session.folder / "history.json", {"epochs": session.history})
        calibration = calibrate_temperature(model, held)
        best_epoch = finish_checkpoint(session.best, model)
        with torch.inference_mode():
            validation_auc = area_under_roc(model(held.features), held.labels)
        choice, without_fusion = self._thresholds(sets, model)
        manifest |= {
            "best_epoch": best_epoch,
            "calibration": calibration,
            "thresholds": asdict(choice),
            "without_fusion": asdict(without_fusion),
            "questions": {judged.name: [question_key(text) for text in judged.paths.queries.texts] for judged in sets},
            "metrics": {"val/auc": validation_auc, "val/accuracy": choice.accuracy},
        }
        write_manifest(session.folder, manifest)
        folds = self._cross_validate(training, session.folder, train, manifest) if self.folds else []
        if folds:
            manifest["cross_validation"] = {"folds": folds, **error_bars(folds)}
            write_manifest(session.folder, manifest)
        tables |= adapter_rows(manifest, len(train.labels), len(held.labels))
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

    def _describe(self, runner: PathRunner, syntax: SyntaxFeatures, sets: Sequence[Judged]) -> dict[str, Any]:
        """Return the manifest's entries that are known before the training."""
        return {
            "name": self.name,
            "finished": False,
            "right": self.right,
            "syntax": {"name": syntax.name, "fingerprint": syntax.fingerprint, "feature_names": list(FEATURES)},
            "paths": {
                path: {"choice": getattr(self, path), "settings": path_settings(pipeline)}
                for path, pipeline in runner.pipelines.items()
            },
            "data": {judged.name: {"entry": dict(self.data[judged.name]), **judged.counts} for judged in sets},
            "training": {
                "seed": self.settings.seed,
                "batch_size": self.batch_size,
                "module": dict(self.module.keywords),
                "disagreements": hash_json(list(disagreements(sets))),
            },
            "versions": library_versions(),
            "metrics": {},
        }

    def _train(
        self, session: TrainingSession, rows: AdapterRows, manifest: dict[str, Any], settings: AdapterSettings
    ) -> tuple[ComplexityAdapter, dict[str, Any]]:
        """Train on four fifths of some rows, unless an earlier run did; return the best epoch's model and manifest."""
        train, validation = early_stopping_split(rows, settings.seed)
        model = build_adapter(self.model, train, settings)
        numbers = {"num_features": model.num_features, "num_selected": len(model.selected), "dropout": settings.dropout}
        manifest = manifest | {
            "model": {"name": model_name(type(model)), "arguments": self.model.keywords | numbers},
            "features": [FEATURES[column] for column in model.selected.tolist()],
        }
        if earlier := session.earlier_results(manifest, DECISIVE):
            manifest |= earlier
        else:
            batches = AdapterDataModule(train, validation, batch_size=self.batch_size, seed=settings.seed)
            with torch.random.fork_rng(devices=[]):
                manifest = session.train(self.module(model, seed=settings.seed), batches, manifest)
        return cast(ComplexityAdapter, load_checkpoint(session.best, model=model).model), manifest

    def _cross_validate(
        self, training: TrainingPlan, folder: Path, rows: AdapterRows, manifest: dict[str, Any]
    ) -> list[dict[str, Any]]:
        """Train once per fold on the rows of the others, and judge the fold; folds of an earlier run are kept."""
        folds = stratified_folds(rows, self.folds, self.seed)
        decisive = {name: manifest[name] for name in DECISIVE}

        def judge(number: int, others: AdapterRows, own: AdapterRows) -> dict[str, Any]:
            with TemporaryDirectory(dir=folder, prefix=".fold-") as scratch:
                session = training.silent_session(scratch, self.name)
                model, _ = self._train(
                    session, others, manifest | {"finished": False}, replace(self.settings, seed=self.seed + number)
                )
            return {"fold": number, **judge_rows(model, own)}

        judged = []
        with progress_bar("cross-validating the adapter", len(folds)):
            for number, (others, own) in enumerate(folds, 1):
                file = step_file(folder, f"fold {number}", [decisive, self.folds, self.seed, training.config])
                judged.append(do_step(file, partial(judge, number, others, own)))
                advance(1)
        return judged

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


def _disagreements(sets: Sequence[Judged], held: bool) -> AdapterRows:
    """Join disagreements, those for training or for validation; labelled 1 where the graph is right."""
    kept = [judged.disagree & (judged.held == held) for judged in sets]
    parts = ((judged.features[rows], judged.right[rows, 1].long()) for judged, rows in zip(sets, kept, strict=True))
    features, labels = map(torch.cat, zip(*parts, strict=True))
    if (classes := set(labels.tolist())) != {0, 1}:
        raise UserError(
            f"`labels` must hold both classes, 0 and 1, got {sorted(classes)} in {len(labels)} rows; where one path is "
            "always right there is nothing to route"
        )
    return AdapterRows(features, labels)


def finish_checkpoint(path: Path, model: ComplexityAdapter) -> int:
    """Write the fitted temperature into a Lightning checkpoint, and return its epoch, counted from 1.

    Args:
        path: The ``.ckpt`` file.
        model: The calibrated model of its weights.
    """
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    checkpoint["state_dict"][f"{MODULE_PREFIX}temperature"] = model.temperature.detach().cpu()
    with atomic_path(path) as temporary:
        torch.save(checkpoint, temporary)
    return int(checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["started"])


@torch.inference_mode()
def judge_rows(model: ComplexityAdapter, rows: AdapterRows) -> dict[str, Any]:
    """Judge an adapter on rows that it was not trained on.

    Args:
        model: Trained adapter.
        rows: Rows of both classes.

    Returns:
        The number of ``rows``, the ``AUC``, the ``accuracy`` of choosing the path with a score above one half, and that
        of always choosing the path of the ``larger class``.
    """
    logits, labels = model.logits(rows.features), rows.labels
    share = float(labels.double().mean())
    accuracy = float(((logits > 0).long() == labels).double().mean())
    return {
        "rows": len(labels),
        "AUC": area_under_roc(logits, labels),
        "accuracy": accuracy,
        "larger class": max(share, 1 - share),
    }


def error_bars(folds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return mean and sample standard deviation of what was measured in each fold."""
    measured = {name: [fold[name] for fold in folds] for name in CROSS_VALIDATED}
    return {name: {"mean": fmean(each), "standard deviation": stdev(each)} for name, each in measured.items()}


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
    """Describe how the adapter was trained, its error bars, and what its thresholds give.

    Args:
        manifest: Manifest of the trained adapter.
        num_train: Number of disagreements for training.
        num_held: Number of disagreements for validation.

    Returns:
        The rows of each table of the report, by its title.
    """
    calibration, choice = manifest["calibration"], manifest["thresholds"]
    counts = {"disagreements for training": num_train, "for validation": num_held, "best epoch": manifest["best_epoch"]}
    adapter = {**counts, "AUC on validation": manifest["metrics"]["val/auc"]}
    adapter |= {name.replace("_", " "): number for name, number in calibration.items()}
    tables = {"The adapter": [adapter]}
    if (validated := manifest.get("cross_validation")) is not None:
        bars: list[dict[str, Any]] = [
            {"fold": kind, **{name: validated[name][kind] for name in CROSS_VALIDATED}}
            for kind in ("mean", "standard deviation")
        ]
        tables[f"{len(validated['folds'])} folds of the training disagreements"] = [*validated["folds"], *bars]
    names = ("low", "high", "price", "accuracy", "seconds", "objective")
    tables["Its thresholds"] = [{name: choice[name] for name in names}]
    tables["Its routes"] = [
        {"path": route, "share": choice["shares"][route], "alone": choice["alone"][route]} for route in ROUTES
    ]
    return tables
