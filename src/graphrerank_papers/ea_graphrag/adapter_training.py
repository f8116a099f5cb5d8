"""Train the complexity adapter: ``graphrerank train experiment=complexity_adapter``.

Both paths retrieve for the training questions, and the adapter learns to choose the path that is right.
"""

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
from graphrerank_papers.ea_graphrag.nested_cross_validation import adapter_and_baselines, nested_cross_validation
from graphrerank_papers.ea_graphrag.routing_questions import QUESTION_PARTS
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures
from graphrerank_papers.ea_graphrag.two_paths import PathRunner, TwoPaths, parse_rule, path_settings, question_key
from graphrerank_papers.experiments import do_step, hashed_order, step_file, write_tables

#: Manifest entries that must be unchanged when a run is resumed.
DECISIVE = ("data", "paths", "right", "syntax", "model", "features", "training")
#: Arguments of the module that the session records in other manifest entries.
OPTIMIZATION = ("optimizer", "scheduler", "parameter_groups")
#: Measures that cross-validation reports.
CROSS_VALIDATED = ("AUC", "accuracy", "larger class")


@dataclass(frozen=True, eq=False)
class Judged:
    """Questions of one data set, with the correctness of both paths.

    Attributes:
        name: Name of the data set in the settings.
        paths: Rankings of both paths.
        right: Whether the dense path and the graph path were right, ``[Q, 2]`` bool.
        is_validation: Whether each question is reserved for validation, ``[Q]`` bool.
        features: Raw syntax features ``[Q, F]``.
    """

    name: str
    paths: TwoPaths
    right: Tensor
    is_validation: Tensor
    features: Tensor

    @property
    def disagree(self) -> Tensor:
        """Whether exactly one path was right for each question, ``[Q]`` bool."""
        return self.right[:, 0] != self.right[:, 1]

    @property
    def counts(self) -> dict[str, int]:
        """Number of all questions, of validation questions, and of questions for each outcome of the two paths."""
        dense, graph = self.right.unbind(1)
        kinds = {
            "validation": self.is_validation,
            "both": dense & graph,
            "neither": ~dense & ~graph,
            "dense_only": dense & ~graph,
            "graph_only": graph & ~dense,
        }
        return {"questions": len(self.paths), **{name: int(kind.sum()) for name, kind in kinds.items()}}


@dataclass(frozen=True, kw_only=True)
class AdapterTraining:
    """Job that trains a complexity adapter, with the settings of ``conf/experiment/complexity_adapter.yaml``.

    Attributes:
        name: Name of the adapter's folder in the run folder.
        encoder: Configuration of the text encoder.
        dense: Pipeline of the dense path, a name in ``conf/pipeline``.
        graph: Pipeline of the graph path, a name in ``conf/pipeline``.
        data: Settings of each data set, by name, as in :meth:`PathRunner.read`.
        right: Rule that decides whether a ranking is right, such as ``all_relevant@5``; see :func:`parse_rule`.
        answers: :class:`~graphrerank_papers.answers.stage.AnswerStage` that answers the questions. Only used, and then
            required, by the rule ``language_model``.
        syntax: Source of the syntactic units: ``dependency`` (spaCy) or ``stanza``.
        stanza_folder: Folder of Stanza's models. If None, Stanza's default folder is used.
        validation_share: Share of each data set's questions that is reserved for validation, in (0, 1). The temperature
            and the thresholds are chosen on these questions.
        price: Gain in accuracy that is worth one second per question.
        settings: Settings of feature selection and of the model.
        model: Builder of the adapter.
        module: Builder of the Lightning module.
        batch_size: Number of rows in a training batch.
        folds: Number of folds of the cross-validation, each of which trains one more adapter. 0 disables it.
        nested_folds: Number of outer folds of the nested cross-validation, which compares the adapter with other
            classifiers on all disagreements. 0 disables it.
        nested_inner_folds: Number of inner folds, on which the nested cross-validation chooses settings.
        curve_shares: Shares of a fold's training rows, in (0, 1], that the points of the learning curve use.
        seed: Random seed for sampling, splits and folds.
    """

    name: str
    encoder: Any
    dense: str
    graph: str
    data: Mapping[str, Mapping[str, Any]]
    right: str
    answers: Any = None
    syntax: str
    stanza_folder: str | None = None
    validation_share: float
    price: float
    settings: AdapterSettings
    model: "partial[ComplexityAdapter]"
    module: "partial[AdapterModule]"
    batch_size: int
    folds: int
    nested_folds: int = 0
    nested_inner_folds: int = 3
    curve_shares: Sequence[float] = (0.2, 0.4, 0.6, 0.8, 1.0)
    seed: int

    def __post_init__(self) -> None:
        parse_rule(self.right)
        if not 0 < self.validation_share < 1:
            raise UserError(f"`job.validation_share` must lie in (0, 1), got {self.validation_share}")
        if self.folds < 0 or self.folds == 1:
            raise UserError(f"`job.folds` must be 0 or at least 2, got {self.folds}")
        if self.nested_folds < 0 or self.nested_folds == 1 or self.nested_inner_folds < 2:
            raise UserError(
                "`job.nested_folds` must be 0 or at least 2, and `job.nested_inner_folds` at least 2, got "
                f"{self.nested_folds} and {self.nested_inner_folds}"
            )

    def __call__(self, parts: ComponentFactory, run_dir: Path, training: TrainingPlan) -> Path:
        """Train on the questions that exactly one path gets right. Cached rankings and syntax features are reused.

        Args:
            parts: Factory of the components of both paths. Also provides the cache folder.
            run_dir: Folder of the run.
            training: Trainer, callbacks, loggers and the run to resume.

        Returns:
            Folder of the run.

        Raises:
            ValueError: If the two paths never disagree in one direction, so there is nothing to learn, or if a class
                has too few questions for early stopping or for ``folds``.
        """
        torch.set_num_threads(parts.num_threads)
        runner = PathRunner(parts, {"dense": self.dense, "graph": self.graph}, encoder=self.encoder)
        syntax = SyntaxFeatures(
            self.syntax, stanza_folder=self.stanza_folder, cache=parts.cache / "syntax", device=parts.device
        )
        sets = [self._judge(runner, syntax, name, entry) for name, entry in self.data.items()]
        write_json_lines(run_dir / "disagreements.jsonl", disagreements(sets))
        tables = {"Which path was right": agreement_rows(sets)}
        write_tables(run_dir, "Complexity adapter", tables)

        train, validation = (_disagreements(sets, held_out) for held_out in (False, True))
        if self.folds:
            stratified_folds(train, self.folds, self.seed)  # fail before training if there are too many folds
        session = training.session(run_dir, self.name)
        described = self._describe(runner, syntax, sets) | {"config": dict(training.config) or {"seed": self.seed}}
        model, manifest = self._train(session, train, described, self.settings)
        if session.history:
            write_json(session.folder / "history.json", {"epochs": session.history})
        calibration = calibrate_temperature(model, validation)
        best_epoch = finish_checkpoint(session.best, model)
        with torch.inference_mode():
            validation_auc = area_under_roc(model(validation.features), validation.labels)
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
        tables |= adapter_rows(manifest, len(train.labels), len(validation.labels))
        if self.nested_folds:
            every = AdapterRows(*map(torch.cat, zip(train, validation, strict=True)))
            tables |= self._compare(training, session.folder, every, manifest)
        print(write_tables(run_dir, "Complexity adapter", tables))
        return run_dir

    def _judge(self, runner: PathRunner, syntax: SyntaxFeatures, name: str, entry: Mapping[str, Any]) -> Judged:
        """Run both paths for the questions of a data set, decide which is right, and reserve a share for validation."""
        paths = runner.read(name, entry, seed=self.seed)
        rankings = (paths.dense, paths.graph)
        right = [paths.is_right(ranking.nodes, self.right, answers=self.answers) for ranking in rankings]
        is_held_out = torch.zeros(len(paths), dtype=torch.bool)
        order = hashed_order(paths.queries.ids, self.seed + 1)
        is_held_out[torch.tensor(order[: round(self.validation_share * len(order))], dtype=torch.int64)] = True
        return Judged(name, paths, torch.stack(right, dim=1), is_held_out, syntax.extract(paths.queries.texts))

    def _describe(self, runner: PathRunner, syntax: SyntaxFeatures, sets: Sequence[Judged]) -> dict[str, Any]:
        """Return the manifest entries that are known before training."""
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
                "module": {key: setting for key, setting in self.module.keywords.items() if key not in OPTIMIZATION},
                "disagreements": hash_json(list(disagreements(sets))),
            },
            "versions": library_versions(),
            "metrics": {},
        }

    def _train(
        self, session: TrainingSession, rows: AdapterRows, manifest: dict[str, Any], settings: AdapterSettings
    ) -> tuple[ComplexityAdapter, dict[str, Any]]:
        """Return the model and the manifest of the best epoch. Training is skipped if an earlier run completed it."""
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
        """Train an adapter per fold on the other folds, and evaluate it on the fold. Completed folds are reused."""
        folds = stratified_folds(rows, self.folds, self.seed)
        decisive = {name: manifest[name] for name in DECISIVE}

        def judge(number: int, others: AdapterRows, fold_rows: AdapterRows) -> dict[str, Any]:
            with TemporaryDirectory(dir=folder, prefix=".fold-") as scratch:
                session = training.silent_session(scratch, self.name)
                model, _ = self._train(
                    session, others, manifest | {"finished": False}, replace(self.settings, seed=self.seed + number)
                )
            return {"fold": number, **judge_rows(model, fold_rows)}

        judged = []
        with progress_bar("cross-validating the adapter", len(folds)):
            for number, (others, fold_rows) in enumerate(folds, 1):
                file = step_file(folder, f"fold {number}", [decisive, self.folds, self.seed, training.config])
                judged.append(do_step(file, partial(judge, number, others, fold_rows)))
                advance(1)
        return judged

    def _compare(
        self, training: TrainingPlan, folder: Path, rows: AdapterRows, manifest: dict[str, Any]
    ) -> dict[str, list[dict[str, Any]]]:
        """Compare the adapter with other classifiers, and return the tables. Completed classifiers are reused."""

        def train(fold_rows: AdapterRows, settings: AdapterSettings) -> ComplexityAdapter:
            """Train and calibrate an adapter as the job does, in a scratch folder."""
            with TemporaryDirectory(dir=folder, prefix=".nested-") as scratch:
                session = training.silent_session(scratch, self.name)
                model, _ = self._train(session, fold_rows, manifest | {"finished": False}, settings)
            calibrate_temperature(model, early_stopping_split(fold_rows, settings.seed)[1])
            return model

        numbers = {"num_folds": self.nested_folds, "num_inner_folds": self.nested_inner_folds, "seed": self.seed}
        decisive = [{name: manifest[name] for name in DECISIVE}, numbers, list(self.curve_shares), training.config]
        classifiers = adapter_and_baselines(train, num_selected=self.settings.num_selected, seed=self.seed)
        results = {}
        with progress_bar("nested cross-validation", len(classifiers)):
            for name, classifier in classifiers.items():
                compute = partial(nested_cross_validation, classifier, rows, shares=self.curve_shares, **numbers)
                results[name] = do_step(step_file(folder, f"nested {name}", [name, *decisive]), compute)
                advance(1)
        return comparison_rows(results, len(rows.labels))

    def _thresholds(self, sets: Sequence[Judged], model: ComplexityAdapter) -> tuple[ThresholdChoice, ThresholdChoice]:
        """Choose the thresholds on the validation questions of all data sets, with and without fusion."""
        all_scores, all_correct, all_seconds = list[Tensor](), list[Tensor](), list[Tensor]()  # of each data set
        for judged in sets:
            with torch.inference_mode():
                predicted = model(judged.features)
            rankings, seconds = judged.paths.routes(predicted)
            right = judged.paths.is_right(rankings[FUSION].nodes, self.right, answers=self.answers)
            correct = torch.cat([judged.right, right.unsqueeze(1)], dim=1)
            all_scores.append(predicted[judged.is_validation])
            all_correct.append(correct[judged.is_validation])
            all_seconds.append(seconds[judged.is_validation])
        outcomes = map(torch.cat, (all_scores, all_correct, all_seconds))
        choose = partial(choose_thresholds, *outcomes, price=self.price)
        return choose(fuse=True), choose(fuse=False)


def _disagreements(sets: Sequence[Judged], held_out: bool) -> AdapterRows:
    """Join the questions that exactly one path gets right, for training or validation. Label 1 means the graph path."""
    masks = [judged.disagree & (judged.is_validation == held_out) for judged in sets]
    pairs = ((judged.features[mask], judged.right[mask, 1].long()) for judged, mask in zip(sets, masks, strict=True))
    features, labels = map(torch.cat, zip(*pairs, strict=True))
    if (classes := set(labels.tolist())) != {0, 1}:
        raise UserError(
            f"`labels` must contain both classes, 0 and 1, got {sorted(classes)} in {len(labels)} rows. If one path is "
            "always right, there is nothing to route"
        )
    return AdapterRows(features, labels)


def finish_checkpoint(path: Path, model: ComplexityAdapter) -> int:
    """Write the fitted temperature into a Lightning checkpoint.

    Args:
        path: Path of the ``.ckpt`` file.
        model: Calibrated model with the weights of the checkpoint.

    Returns:
        Epoch of the checkpoint, 1-based.
    """
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    checkpoint["state_dict"][f"{MODULE_PREFIX}temperature"] = model.temperature.detach().cpu()
    with atomic_path(path) as temporary:
        torch.save(checkpoint, temporary)
    return int(checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["started"])


@torch.inference_mode()
def judge_rows(model: ComplexityAdapter, rows: AdapterRows) -> dict[str, Any]:
    """Evaluate an adapter on rows that it was not trained on.

    Args:
        model: Trained adapter.
        rows: Rows of both classes.

    Returns:
        Number of ``rows``; ``AUC``; ``accuracy`` if the graph path is chosen for scores above one half; and the
        accuracy of always choosing the path of the ``larger class``.
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
    """Return the mean and the sample standard deviation of each measure over the folds.

    Args:
        folds: Measures of each fold, as returned by :func:`judge_rows`.
    """
    measured = {name: [fold[name] for fold in folds] for name in CROSS_VALIDATED}
    return {name: {"mean": fmean(each), "standard deviation": stdev(each)} for name, each in measured.items()}


def disagreements(sets: Sequence[Judged]) -> Iterator[dict[str, Any]]:
    """Describe the questions that exactly one path gets right.

    Args:
        sets: Questions of all data sets.

    Yields:
        Data set, split, id, text and right path of a question.
    """
    for judged in sets:
        for row in judged.disagree.nonzero().flatten().tolist():
            part = QUESTION_PARTS[int(judged.is_validation[row])]
            right_path = ROUTES[int(judged.right[row, 1])]
            question = {"query_id": judged.paths.queries.ids[row], "text": judged.paths.queries.texts[row]}
            yield {"data": judged.name, "part": part, **question, "right": right_path}


def agreement_rows(sets: Sequence[Judged]) -> list[dict[str, Any]]:
    """Count the questions that each path gets right.

    Args:
        sets: Questions of all data sets.

    Returns:
        One table row per data set. Milliseconds are per question, measured on batches and without query encoding.
    """
    rows = []
    for judged in sets:
        counts = {name.replace("_", " "): count for name, count in judged.counts.items()}
        differ = counts["dense only"] + counts["graph only"]
        share = counts["graph only"] / differ if differ else None
        times = {f"{path} ms": 1000 * time for path, time in zip(ROUTES, judged.paths.seconds, strict=False)}
        rows.append({"data set": judged.name, **counts, "graph's share": share, **times})
    return rows


def comparison_rows(results: Mapping[str, Mapping[str, Any]], num_rows: int) -> dict[str, list[dict[str, Any]]]:
    """Return the results of the nested cross-validation as tables.

    Args:
        results: Results of each classifier, as returned by :func:`nested_cross_validation`.
        num_rows: Number of rows of the cross-validation.

    Returns:
        Rows of the table of measures and of the table of learning curves, by title.
    """
    measures = [
        {"classifier": name, **result["measures"], "settings": result["settings"]} for name, result in results.items()
    ]
    curves = [{"classifier": name, **point} for name, result in results.items() for point in result["curve"]]
    return {
        f"Nested cross-validation over {num_rows} disagreements": measures,
        "Learning curves": curves,
    }


def adapter_rows(manifest: Mapping[str, Any], num_train: int, num_held: int) -> dict[str, list[dict[str, Any]]]:
    """Summarise the training of the adapter, its cross-validation and its thresholds as tables.

    Args:
        manifest: Manifest of the trained adapter.
        num_train: Number of training questions that exactly one path gets right.
        num_held: Number of validation questions that exactly one path gets right.

    Returns:
        Rows of each table of the report, by title.
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
