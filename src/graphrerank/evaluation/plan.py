"""Plan an evaluation: name its systems and check its arguments before anything is loaded."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.evaluation.ablations import EDGE_ABLATIONS
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.evaluation.measuring import (
    MIXED_MEASURES,
    RERANKER_MEASURES,
    SIGNIFICANCE_MEASURES,
    EvaluationPlan,
)
from graphrerank.evaluation.systems import Stage
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

CHECKPOINT, PIPELINE, RUN_FILE = "checkpoint", "pipeline", "run"
RUN_ENDINGS = (".trec", ".run", ".txt", ".tsv", ".jsonl", ".gz")
ENDINGS = r"(\.(trec|run|txt|tsv|jsonl))?(\.gz)?(\.ckpt)?$"
DATASET = "{dataset}"  # stands for the name of the data set in the path of a run file


@dataclass(frozen=True)
class SystemSpec:
    """A system to evaluate, with its name in reports.

    Attributes:
        label: Name of the system in reports.
        kind: ``checkpoint``, ``pipeline`` or ``run`` (a TREC run file).
        source: Name or path of the system, for the report.
        argument: The system as the caller passed it: a checkpoint, a pipeline, or the path of a run file.
    """

    label: str
    kind: str
    source: str
    argument: Any


@dataclass(frozen=True)
class PlannedEvaluation:
    """The checked arguments of an evaluation.

    Attributes:
        systems: Systems in the order of the tables' rows. The last one is the primary system.
        datasets: Data sets, as the caller passed them.
        measures: Measures, significance tests, and the rule for ties.
        only_checkpoint: Whether the caller passed one checkpoint alone, whose models then keep their own names.
        pipeline_settings: Changed settings of pipelines, by label.
        edge_ablations: Edge ablations to run.
    """

    systems: Sequence[SystemSpec]
    datasets: Sequence[Any]
    measures: EvaluationPlan
    only_checkpoint: bool
    pipeline_settings: Mapping[str, Mapping[str, Any]]
    edge_ablations: Sequence[str]

    @property
    def labels(self) -> list[str]:
        """Labels of the systems, in the order of the tables' rows."""
        return [system.label for system in self.systems]

    def of_kind(self, kind: str) -> list[SystemSpec]:
        """Return the systems of one kind.

        Args:
            kind: ``checkpoint``, ``pipeline`` or ``run``.

        Returns:
            Systems in the order of the tables' rows.
        """
        return [system for system in self.systems if system.kind == kind]


def plan_evaluation(
    systems: Any,
    data: Any,
    *,
    pipeline_names: Sequence[str],
    measures: Sequence[str] = (),
    significance_measures: Sequence[str] = (),
    stages: Sequence[Stage] = (),
    pipeline_settings: Mapping[str, Mapping[str, Any]] | None = None,
    edge_ablations: Sequence[str] = EDGE_ABLATIONS,
    ties: str = "own",
    resamples: int = 10_000,
    seed: int = 0,
) -> PlannedEvaluation:
    """Check the arguments of an evaluation, without reading a file.

    Args:
        systems: Systems as :func:`~graphrerank.evaluation.evaluate.evaluate` takes them.
        data: A data set or a list of them.
        pipeline_names: Names of the files of ``conf/pipeline``.
        measures: Names of measures. If empty, they depend on the kinds of systems.
        significance_measures: Measures to run significance tests on.
        stages: Stages after ranking, which add measures.
        pipeline_settings: Changed settings of pipelines, by label.
        edge_ablations: Edge ablations to run.
        ties: Rule for ties, ``own`` or ``trec``.
        resamples: Number of sign flips and of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        The plan.

    Raises:
        ValueError: If two systems have one name, or if an argument is invalid.
    """
    only_checkpoint = isinstance(systems, str | Path | GraphReranker)
    specs = name_systems(systems, pipeline_names)
    datasets = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    if not datasets:
        raise UserError("`data` must name at least one data set, got none")
    check_run_files(specs, len(datasets))
    check_pipeline_settings(specs, pipeline_settings or {})
    if unknown := sorted(set(edge_ablations) - set(EDGE_ABLATIONS)):
        raise UserError(f"`edge_ablations` must be of {EDGE_ABLATIONS}, got {unknown}")
    return PlannedEvaluation(
        specs,
        datasets,
        plan_measures(
            measures,
            significance_measures,
            stages,
            default=RERANKER_MEASURES if only_checkpoint and specs[0].kind == CHECKPOINT else MIXED_MEASURES,
            ties=ties,
            resamples=resamples,
            seed=seed,
        ),
        only_checkpoint,
        pipeline_settings or {},
        tuple(edge_ablations),
    )


def plan_measures(
    measures: Sequence[str],
    significance_measures: Sequence[str],
    stages: Sequence[Stage],
    *,
    default: Sequence[str],
    ties: str = "own",
    resamples: int = 10_000,
    seed: int = 0,
) -> EvaluationPlan:
    """Choose the measures of an evaluation, and those that are tested.

    Args:
        measures: Names of measures. If empty, ``default`` is used. Those of the stages are added.
        significance_measures: Measures to run significance tests on. If empty, the usual ones and those that the
            stages name.
        stages: Stages after ranking.
        default: Measures to use if none are named.
        ties: Rule for ties, ``own`` or ``trec``.
        resamples: Number of sign flips and of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        Measures and significance tests.

    Raises:
        ValueError: If a measure is unknown or named twice, or a tested one is not measured.
    """
    stage_measures = [name for stage in stages for name in stage.measures]
    names = list(measures or default)
    names += [name for name in stage_measures if name not in names]
    tested_by_stages = [name for stage in stages for name in stage.tested]
    if not significance_measures and tested_by_stages:
        usual = [name for name in SIGNIFICANCE_MEASURES if name in names]
        significance_measures = [*usual, *tested_by_stages]
    return EvaluationPlan(names, significance_measures, ties=ties, resamples=resamples, seed=seed, stage=stage_measures)


def name_systems(systems: Any, pipeline_names: Sequence[str]) -> list[SystemSpec]:
    """Name systems, and recognise their kinds.

    Args:
        systems: A mapping from labels to systems, a list of systems, or one system
            (:func:`~graphrerank.evaluation.evaluate.evaluate`). Systems without labels are named by their paths.
        pipeline_names: Names of the files of ``conf/pipeline``.

    Returns:
        Specifications in the order of the systems.

    Raises:
        ValueError: If there is no system, or if a name is that of another system or of a baseline.
    """
    if isinstance(systems, Mapping) and "_target_" not in systems:
        reserved = sorted({str(label) for label in systems} & set(BASELINES))
        if reserved or not systems:
            raise UserError(f"`systems` must have one name or more, and none of a baseline {BASELINES}, got {reserved}")
        return [system_spec(str(label), system, pipeline_names) for label, system in systems.items()]
    listed = list(systems) if isinstance(systems, Sequence) and not isinstance(systems, str) else [systems]
    sources = [str(system.source if isinstance(system, GraphReranker) else system) for system in listed]
    if not sources or len(set(sources)) != len(sources):
        raise UserError(f"`systems` must name one system or more, and none twice, got {sources}")
    labels = short_names(sources)
    return [system_spec(label, system, pipeline_names) for label, system in zip(labels, listed, strict=True)]


def system_spec(label: str, system: Any, pipeline_names: Sequence[str]) -> SystemSpec:
    """Recognise the kind of a system.

    Args:
        label: Name of the system in reports.
        system: System as the caller passed it.
        pipeline_names: Names of the files of ``conf/pipeline``.

    Returns:
        A checkpoint, unless the system is a pipeline (an object, settings, or one of the names) or a run file (a path
        with the suffix of one, or of an existing file that is no ``.ckpt``).
    """
    if isinstance(system, GraphReranker):
        return SystemSpec(label, CHECKPOINT, str(system.source), system)
    if isinstance(system, Checkpoint):
        return SystemSpec(label, CHECKPOINT, str(system.path), system)
    if not isinstance(system, str | Path):
        return SystemSpec(label, PIPELINE, label, system)
    source = str(system)
    if isinstance(system, str) and system in pipeline_names:
        return SystemSpec(label, PIPELINE, source, system)
    path = Path(source)
    is_run = source.endswith(RUN_ENDINGS) or DATASET in source or (path.is_file() and path.suffix != ".ckpt")
    return SystemSpec(label, RUN_FILE if is_run else CHECKPOINT, source, system)


def short_names(sources: Sequence[str]) -> list[str]:
    """Name paths by as few of their last components as make the names unique.

    Suffixes of run files and checkpoints are left out.

    Args:
        sources: Paths or names.

    Returns:
        Names in the same order. None is that of a baseline.

    Raises:
        ValueError: If two whole paths give one name, or one gives that of a baseline.

    Example:
        >>> short_names(["runs/1/gatv2", "runs/2/gatv2.ckpt"])
        ['1-gatv2', '2-gatv2']
    """
    paths = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, paths)) + 1):
        ends = [[component for component in path[-count:] if component != "/"] for path in paths]
        names = ["-".join(re.sub(ENDINGS, "", part).strip(".-_") or part for part in end) for end in ends]
        if len({*names, *BASELINES}) == len(names) + len(BASELINES):
            return names
    raise UserError(
        f"`systems` must have different names, and none of a baseline {BASELINES}, got {list(sources)}; write a path "
        "with its parent folder, or rename it"
    )


def check_run_files(systems: Sequence[SystemSpec], num_datasets: int) -> None:
    """Check that a run file of one data set is not evaluated on several.

    Args:
        systems: Systems to evaluate.
        num_datasets: Number of data sets.

    Raises:
        ValueError: If the path of a run file does not contain ``{dataset}`` and there are several data sets.
    """
    for system in systems:
        if system.kind == RUN_FILE and DATASET not in system.source and num_datasets > 1:
            raise UserError(
                f"`systems`: the run file {system.source} is of one data set, `datasets` names {num_datasets}; write "
                f"its path with {DATASET} in the place of the name"
            )


def check_pipeline_settings(systems: Sequence[SystemSpec], settings: Mapping[str, Any]) -> None:
    """Check that changed settings belong to pipelines of the evaluation.

    Args:
        systems: Systems to evaluate.
        settings: Changed settings, by label of the pipeline.

    Raises:
        ValueError: If an entry is not a mapping, or does not name a pipeline.
    """
    for name, changes in settings.items():
        if not isinstance(changes, Mapping):
            raise UserError(f"`settings.{name}` must be written as settings.{name}.KEY=..., got {changes!r}")
    pipelines = sorted(system.label for system in systems if system.kind == PIPELINE)
    if unknown := sorted(set(settings) - set(pipelines)):
        raise UserError(f"`settings` must be of pipelines in `systems`, {pipelines}, got {unknown}")
