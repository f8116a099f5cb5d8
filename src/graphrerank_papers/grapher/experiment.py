"""Run GraphER's protocol over several data sets, and report tables: ``graphrerank train experiment=grapher_tables``."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor, nn

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.baselines import reranking_systems
from graphrerank.evaluation.reranking import measure_queries
from graphrerank.evaluation.significance import bootstrap_interval, paired_randomization
from graphrerank.training.fit import fit
from graphrerank.training.settings import FitSettings
from graphrerank.training.training_data import TrainingData, with_matches
from graphrerank.training.tuning import tune_restart_probs
from graphrerank.utils.checks import UserError
from graphrerank_papers.experiments import Experiment, TableRow, do_step, step_file, write_tables

FROZEN = ("retriever", "ppr", "gcs")
MLP, GATV2 = "MLP", "GATv2"
#: Overrides of each trained network. Both networks have the same input features.
NETWORKS = {MLP: ("model.message_passing=false",), GATV2: ()}
#: Arguments of :func:`fit` that the grid must contain.
OF_FIT = ("learning_rate", "weight_decay", "max_epochs")
#: Settings of the model that the grid may contain. This one belongs to the GCS feature.
OF_MODEL = ("restart_prob",)
#: Measure by which settings are chosen.
CHOOSE_BY = "PR@10"
GRAPHER_MEASURES = ("PR@5/multi", "PR@5", "PR@10/multi", "PR@10")
TRAINER = {"limit_val_batches": 0, "enable_progress_bar": False}
WARMUP_STEPS = 50

#: Names and numbers of one point of the grid.
SearchedSettings = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class ExperimentStep:
    """Step of the experiment, which trains a network or takes an untrained operator, and measures it.

    Attributes:
        name: Name in progress messages and file names.
        system: Name of the system, one of :data:`FROZEN` or :data:`NETWORKS`.
        features: Name in ``conf/features``.
        choice: Settings of the system.
        overrides: Overrides of the configuration in Hydra's syntax.
        train: Names of the training data sets. Empty for an untrained operator.
        judge: Names of the data sets on which the system is measured.
        split: Split on which the system is measured.
        seed: Random seed of the training.
    """

    name: str
    system: str
    features: str = "scores"
    choice: SearchedSettings = ()
    overrides: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    split: str = "test"
    seed: int = 1


@dataclass(kw_only=True)
class GraphERTables(Experiment):
    """Experiment with the settings of ``conf/experiment/grapher_tables.yaml``.

    Attributes:
        train: Names of the training data sets. Settings are searched on the first.
        judge: Name of the data set on whose validation split settings are chosen.
        test: Names of the test data sets.
        retriever: Name in ``conf/retriever``.
        top_k: Number of candidates per query.
        encoder: Settings of the text encoder.
        encoder_choice: Name in ``conf/encoder``.
        settings: Overrides of all steps in Hydra's syntax.
        grid: Numbers to try for each searched setting.
        features: Names in ``conf/features``, each for all networks.
        seeds: Random seeds of the final training runs.
        ablated: Features of the network that is ablated.
        ablations: Overrides in Hydra's syntax, one per ablation.
        seed: Random seed of the search.
        train_split: Split for training.
        val_split: Split for the search.
        test_split: Split for the tables.
    """

    train: Sequence[str]
    judge: str
    test: Sequence[str]
    retriever: str
    top_k: int
    encoder: Mapping[str, Any]
    encoder_choice: str
    settings: Sequence[str]
    grid: Mapping[str, Sequence[float]]
    features: Sequence[str]
    seeds: Sequence[int]
    ablated: str
    ablations: Sequence[str]
    seed: int
    train_split: str
    val_split: str
    test_split: str
    _parts: ComponentFactory = field(init=False)
    _run_dir: Path = field(init=False)
    _restart_probs: dict[str, float] = field(init=False)
    _prepared: dict[tuple[str, str], PreparedDataset] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not set(OF_FIT) <= set(self.grid) <= {*OF_FIT, *OF_MODEL}:
            names = f"the settings {list(OF_FIT)} and optionally {list(OF_MODEL)}"
            raise UserError(f"`job.grid` must contain {names}, got {list(self.grid)}")

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Run all steps that an earlier run has not finished, and write ``metrics.json`` and ``report.md``.

        Args:
            parts: Factory of the components.
            run_dir: Run folder.

        Returns:
            Run folder.

        Raises:
            UserError: If ``test`` contains the same data set twice.
        """
        self._parts, self._run_dir = parts, run_dir
        self._restart_probs = self._tune()
        models = [(network, mode) for mode in self.features for network in NETWORKS]
        grid = [tuple(zip(self.grid, numbers, strict=True)) for numbers in product(*self.grid.values())]
        alone = partial(
            ExperimentStep, train=(self.train[0],), judge=(self.judge,), split=self.val_split, seed=self.seed
        )
        tries = {
            (model, choice): alone(f"{' '.join(model)} with {in_words(choice)}", *model, choice)
            for model in models
            for choice in grid
        }
        tried = self._do(list(tries.values()))
        scores = {key: mean_of(tried[step], CHOOSE_BY) for key, step in tries.items()}
        final = partial(ExperimentStep, judge=tuple(self.test), split=self.test_split)
        systems = {}
        for name in FROZEN:
            searched = {"restart_prob": self._restart_probs[name]} if name in self._restart_probs else {}
            systems[name, ""] = [final(name, name, choice=tuple(searched.items()))]
        for model in models:
            chosen = max(grid, key=partial(lambda model, choice: scores[model, choice], model))  # the first of equals
            trained = partial(final, system=model[0], features=model[1], choice=chosen, train=tuple(self.train))
            systems[model] = [trained(f"{' '.join(model)} seed {seed}", seed=seed) for seed in self.seeds]
        first = systems[GATV2, self.ablated][0]
        ablations = {
            change: replace(first, name=f"{GATV2} {self.ablated} with {change}", overrides=(change,))
            for change in self.ablations
        }
        done = self._do([*(step for steps in systems.values() for step in steps), *ablations.values()])
        tables = {
            "test sets": self._test_sets([systems[models[0]][0], *ablations.values()]),
            **system_tables({key: [done[step] for step in steps] for key, steps in systems.items()}),
            "ablations": ablation_rows(done[first], {name: done[step] for name, step in ablations.items()}),
            f"tried settings, {CHOOSE_BY} on validation": [
                {"settings": in_words(choice), **{" ".join(model): scores[model, choice] for model in models}}
                for choice in grid
            ],
            "systems": [
                {
                    "system": system,
                    "features": mode,
                    "chosen": in_words(steps[0].choice),
                    "parameters": done[steps[0]]["parameters"],
                    "seconds": round(mean(done[step]["train_seconds"] for step in steps)),
                }
                for (system, mode), steps in systems.items()
            ],
        }
        print(write_tables(run_dir, "GraphER's tables", tables))
        return run_dir

    def _tune(self) -> dict[str, float]:
        """Tune the restart probabilities of the untrained operators on the training split of the first data set."""
        step = ExperimentStep("operators", "retriever", judge=(self.train[0],), split=self.train_split)
        prepared = self._dataset(step, self.train[0])
        return do_step(self._file(step), lambda: tune_restart_probs(prepared, step.split))

    def _compose(self, step: ExperimentStep) -> DictConfig:
        """Compose the configuration of a step."""
        chosen = {"retriever": self.retriever, "features": step.features, "model": "gatv2", "loss": "listwise"}
        searched = [f"model.{name}={value}" for name, value in step.choice if name in OF_MODEL]
        others = [f"retriever.top_k={self.top_k}"]
        for override in (*self.settings, *NETWORKS.get(step.system, ()), *searched, *step.overrides):
            key, _, name = override.partition("=")
            if key in chosen:
                chosen[key] = name
            else:
                others.append(override)
        return self._parts.compose(*(f"+{group}={name}" for group, name in chosen.items()), *others)

    def _retrieval(self, composed: DictConfig) -> tuple[ConfiguredComponent, ConfiguredComponent]:
        """Return the retriever and the encoder, named as in the manifest of a checkpoint."""
        encoder = ConfiguredComponent(OmegaConf.create(dict(self.encoder)), self.encoder_choice)
        return ConfiguredComponent(composed.retriever, self.retriever), encoder

    def _dataset(self, step: ExperimentStep, name: str) -> PreparedDataset:
        """Return a data set with a step's candidates and features."""
        composed = self._compose(step)
        key = (str([OmegaConf.to_yaml(composed.retriever, resolve=True), composed.features.text_match]), name)
        if key not in self._prepared:
            retriever, encoder = self._retrieval(composed)
            ranked = self._parts.prepare(name, retriever=retriever, encoder=encoder)
            self._prepared[key] = with_matches(ranked, composed.features)
        return self._prepared[key]

    def _file(self, step: ExperimentStep) -> Path:
        """Return the file of a step's result."""
        sets = [self._dataset(step, name) for name in (*step.train, *step.judge)]
        data = [[prepared.dataset.fingerprint, prepared.encoder_fingerprint] for prepared in sets]
        composed, groups = self._compose(step), ("retriever", "features", "model", "loss")
        settings = [OmegaConf.to_yaml(composed[group], resolve=True) for group in groups]
        return step_file(self._run_dir, step.name, [settings, step.choice, step.seed, data, step.judge, step.split])

    def _do(self, steps: Sequence[ExperimentStep]) -> dict[ExperimentStep, dict[str, Any]]:
        """Run the steps that have no file, and return the results of all steps.

        A result has ``values``, which are the scores per query for each data set and measure (NaN if the query is
        ignored), the number of ``parameters``, the ``train_seconds``, and the total ``seconds``.
        """
        files = {step: self._file(step) for step in steps}
        waiting = [step for step, file in files.items() if not file.is_file()]
        for count, step in enumerate(waiting, 1):
            result = do_step(files[step], partial(self._measure, step, files[step].stem))
            print(f"[{count}/{len(waiting)}] {step.name}: {result['seconds']:.0f} s", flush=True)
        return {step: do_step(file, dict) for step, file in files.items()}

    def _measure(self, step: ExperimentStep, folder: str) -> dict[str, Any]:
        begin = time.perf_counter()
        models = {step.system: self._fit(step, self._run_dir / "models" / folder)} if step.train else {}
        train_seconds = time.perf_counter() - begin
        systems = reranking_systems(models, self._restart_probs, device=self._parts.device)
        system = next(each for each in systems if each.name == step.system)
        values: dict[str, Mapping[str, list[float]]] = {}
        for name in step.judge:
            prepared = self._dataset(step, name)
            if prepared.dataset.name in values:
                raise UserError(f"`job.test` must contain distinct data sets, got {prepared.dataset.name!r} twice")
            measured = measure_queries(prepared, step.split, system, measures=GRAPHER_MEASURES)
            values[prepared.dataset.name] = {measure: scores.tolist() for measure, scores in measured.items()}
        return {
            "parameters": sum(p.numel() for model in models.values() for p in model.parameters()),
            "train_seconds": train_seconds,
            "seconds": time.perf_counter() - begin,
            "values": values,
        }

    def _fit(self, step: ExperimentStep, folder: Path) -> nn.Module:
        composed, searched = self._compose(step), dict(step.choice)
        sets = {name: self._dataset(step, name) for name in step.train}
        data = {name: self._parts.component("data", name) for name in step.train}
        reranker = fit(
            TrainingData(sets, data, *self._retrieval(composed)),
            model=ConfiguredComponent(composed.model, "gatv2"),
            loss=ConfiguredComponent(composed.loss),
            max_epochs=int(searched["max_epochs"]),
            learning_rate=searched["learning_rate"],
            weight_decay=searched["weight_decay"],
            warmup_steps=WARMUP_STEPS,
            trainer=TRAINER,
            callbacks="last_epoch",
            restart_probs=self._restart_probs,
            run_dir=folder,
            name="gatv2" if step.system == GATV2 else "mlp",
            parts=self._parts,
            settings=FitSettings(
                seed=step.seed, train_split=self.train_split, val_split=self.val_split, calibration=None
            ),
        )
        return reranker.checkpoint.model

    def _test_sets(self, steps: Sequence[ExperimentStep]) -> list[TableRow]:
        """Describe the test sets, with the ceiling for each number of candidates that a step uses."""
        rows = []
        for name in self.test:
            prepared = {int(self._compose(step).retriever.top_k): self._dataset(step, name) for step in steps}
            dataset = self._dataset(steps[0], name).dataset
            qrels = dataset.split(self.test_split)
            rows.append(
                {
                    "data set": dataset.name,
                    "nodes": dataset.graph.num_nodes,
                    "edges": len(dataset.graph.indices) // 2,
                    "queries": len(qrels.queries),
                    "with several relevant": int(((qrels.gains(qrels.queries) > 0).sum(dim=1) > 1).sum()),
                    **{f"ceiling at {depth}": found.ceiling(self.test_split) for depth, found in prepared.items()},
                }
            )
        return rows


def system_tables(results: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, list[TableRow]]:
    """Build a table of systems for each data set.

    A row has the measures, averaged over seeds and queries. For PR@10 it also has the standard deviation over seeds and
    the 95% interval over queries. The row of GATv2 has its difference in PR@10 from the retriever, from GCS, and from
    the MLP with the same features, each with the p-value of a paired test.

    Args:
        results: Results of each system and features, one per seed (see ``GraphERTables._do``).

    Returns:
        Rows by data set.
    """
    tables: dict[str, list[TableRow]] = {}
    for dataset in next(iter(results.values()))[0]["values"]:
        averages = {
            key: {
                name: torch.stack([_tensor(run, dataset, name) for run in runs]).mean(dim=0)
                for name in GRAPHER_MEASURES
            }
            for key, runs in results.items()
        }
        tables[dataset] = []
        for (system, mode), average in averages.items():
            best = average[CHOOSE_BY]
            by_seed = [float(_tensor(run, dataset, CHOOSE_BY).nanmean()) for run in results[system, mode]]
            row: TableRow = {
                "system": system,
                "features": mode,
                **{name: float(average[name].nanmean()) for name in GRAPHER_MEASURES},
                "deviation": stdev(by_seed) if len(by_seed) > 1 else None,
                "95% interval": bootstrap_interval(best).tolist(),
            }
            for other in (("retriever", ""), ("gcs", ""), (MLP, mode)) if system == GATV2 else ():
                theirs = averages[other][CHOOSE_BY]
                row[f"minus {other[0]}"] = float((best - theirs).nanmean())
                row[f"p, {other[0]}"] = float(paired_randomization(best, theirs))
            tables[dataset].append(row)
    return tables


def ablation_rows(full: Mapping[str, Any], changed: Mapping[str, Mapping[str, Any]]) -> list[TableRow]:
    """Build the rows of the ablations: PR@10 of each model, with the p-value of its paired test against the full model.

    Args:
        full: Result of the full model.
        changed: Result of each ablation.

    Returns:
        One row per model, the full one first. Empty without ablations.
    """
    rows = []
    for change, result in {"none": full, **changed}.items() if changed else ():
        row: TableRow = {"change": change}
        for dataset in full["values"]:
            ours, theirs = (_tensor(each, dataset, CHOOSE_BY) for each in (result, full))
            row[dataset] = float(ours.nanmean())
            if result is not full:
                row[f"p, {dataset}"] = float(paired_randomization(ours, theirs))
        rows.append(row)
    return rows


def mean_of(result: Mapping[str, Any], measure: str) -> float:
    """Return the mean of a measure in a result with one data set.

    Args:
        result: Result of a step.
        measure: Name of the measure.
    """
    (dataset,) = result["values"]
    return float(_tensor(result, dataset, measure).nanmean())


def in_words(choice: SearchedSettings) -> str:
    """Describe settings in words.

    Args:
        choice: Names and numbers of the settings.

    Returns:
        Text for tables and progress messages.

    Example:
        >>> in_words((("learning_rate", 0.003), ("max_epochs", 2)))
        'learning rate 0.003, max epochs 2'
    """
    return ", ".join(f"{name.replace('_', ' ')} {number:g}" for name, number in choice)


def _tensor(result: Mapping[str, Any], dataset: str, measure: str) -> Tensor:
    return torch.tensor(result["values"][dataset][measure], dtype=torch.float64)
