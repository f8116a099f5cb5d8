"""Plan an evaluation: name its systems and check its arguments before anything is loaded."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.evaluation.ablations import EDGE_ABLATIONS
from graphrerank.evaluation.baselines import BASELINES, OPTIONAL_BASELINES
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
DATASET = "{dataset}"  # placeholder for the name of the data set in the path of a run file


@dataclass(frozen=True)
class SystemSpec:
    """System to evaluate, with its name in reports.

    Attributes:
        label: Name of the system in reports.
        kind: ``checkpoint``, ``pipeline`` or ``run`` (a TREC run file).
        source: Name or path of the system, for the report.
        argument: System as the caller passed it: a checkpoint, a pipeline, or the path of a run file.
    """

    label: str
    kind: str
    source: str
    argument: Any


@dataclass(frozen=True)
class PlannedEvaluation:
    """Checked arguments of an evaluation.

    Attributes:
        systems: Systems in the order of the tables' rows. The last one is the primary system.
        datasets: Data sets, as the caller passed them.
        measures: Measures, significance tests and tie-breaking.
        only_checkpoint: Whether the caller passed a single checkpoint. If so, its models keep the names in their
            manifests.
        pipeline_settings: Overrides of pipeline settings, by label.
        edge_ablations: Edge ablations to run.
        baselines: Baselines to compare with checkpoints, in addition to the retriever.
    """

    systems: Sequence[SystemSpec]
    datasets: Sequence[Any]
    measures: EvaluationPlan
    only_checkpoint: bool
    pipeline_settings: Mapping[str, Mapping[str, Any]]
    edge_ablations: Sequence[str]
    baselines: Sequence[str] = OPTIONAL_BASELINES

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
    baselines: Sequence[str] = OPTIONAL_BASELINES,
    ties: str = "own",
    resamples: int = 10_000,
    seed: int = 0,
) -> PlannedEvaluation:
    """Check the arguments of an evaluation without reading any file.

    Args:
        systems: Systems, in any form that :func:`~graphrerank.evaluation.evaluate.evaluate` accepts.
        data: One data set or a list of data sets.
        pipeline_names: Names of the files of ``conf/pipeline``.
        measures: Names of measures. If empty, the default for the kinds of systems.
        significance_measures: Measures to run significance tests on. If empty, the default of :func:`plan_measures`.
        stages: Stages after ranking, which may add measures.
        pipeline_settings: Overrides of pipeline settings, by label.
        edge_ablations: Edge ablations to run.
        baselines: Baselines to compare with checkpoints, in addition to the retriever.
        ties: Order of passages with equal scores, ``own`` or ``trec``.
        resamples: Number of random sign flips, and number of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        Checked arguments.

    Raises:
        UserError: If two systems have the same name, or if an argument is invalid.
    """
    only_checkpoint = isinstance(systems, str | Path | GraphReranker)
    specs = name_systems(systems, pipeline_names)
    datasets = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    if not datasets:
        raise UserError("`data` must name at least one data set, got none")
    check_run_files(specs, len(datasets))
    check_pipeline_settings(specs, pipeline_settings or {})
    if unknown := sorted(set(edge_ablations) - set(EDGE_ABLATIONS)):
        raise UserError(f"`edge_ablations` must be a subset of {EDGE_ABLATIONS}, got {unknown}")
    if unknown := sorted(set(baselines) - set(OPTIONAL_BASELINES)):
        raise UserError(f"`baselines` must be a subset of {OPTIONAL_BASELINES}, got {unknown}")
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
        tuple(baselines),
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
    """Choose the measures of an evaluation and the measures of its significance tests.

    Args:
        measures: Names of measures. If empty, ``default`` is used. The measures of the stages are added.
        significance_measures: Measures to run significance tests on. If empty, nDCG@10, PR@10 and CR@10 are tested if
            they are measured, and the measures that the stages request.
        stages: Stages after ranking.
        default: Measures to use if ``measures`` is empty.
        ties: Order of passages with equal scores, ``own`` or ``trec``.
        resamples: Number of random sign flips, and number of bootstrap samples.
        seed: Random seed of resampling.

    Returns:
        Measures and significance tests.

    Raises:
        UserError: If a measure is unknown or duplicated, or if a tested measure is not measured.
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
    """Determine the name and the kind of each system.

    Args:
        systems: Mapping from labels to systems, list of systems, or a single system
            (:func:`~graphrerank.evaluation.evaluate.evaluate`). Systems without labels are named after their paths.
        pipeline_names: Names of the files of ``conf/pipeline``.

    Returns:
        Specifications in the order of the systems.

    Raises:
        UserError: If there is no system, or if a name is used twice or reserved for a baseline.
    """
    if isinstance(systems, Mapping) and "_target_" not in systems:
        reserved = sorted({str(label) for label in systems} & set(BASELINES))
        if reserved or not systems:
            raise UserError(
                f"`systems` must contain at least one system and no name of a baseline {BASELINES}, got {reserved}"
            )
        return [system_spec(str(label), system, pipeline_names) for label, system in systems.items()]
    listed = list(systems) if isinstance(systems, Sequence) and not isinstance(systems, str) else [systems]
    sources = [str(system.source if isinstance(system, GraphReranker) else system) for system in listed]
    if not sources or len(set(sources)) != len(sources):
        raise UserError(f"`systems` must contain at least one system and no duplicates, got {sources}")
    labels = short_names(sources)
    return [system_spec(label, system, pipeline_names) for label, system in zip(labels, listed, strict=True)]


def system_spec(label: str, system: Any, pipeline_names: Sequence[str]) -> SystemSpec:
    """Determine the kind of a system.

    An object, settings or a name of ``conf/pipeline`` is a pipeline. A path is a run file if it has the suffix of one,
    or if it is an existing file other than a ``.ckpt``. All other systems are checkpoints.

    Args:
        label: Name of the system in reports.
        system: System as the caller passed it.
        pipeline_names: Names of the files of ``conf/pipeline``.

    Returns:
        Specification of the system.
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
    """Return the shortest unique names for paths, made of their last components.

    Suffixes of run files and checkpoints are left out.

    Args:
        sources: Paths or names.

    Returns:
        Unique names in the same order, none of them the name of a baseline.

    Raises:
        UserError: If even the full paths lead to duplicate names, or to the name of a baseline.

    Example:
        >>> short_names(["runs/1/gatv2", "runs/2/gatv2.ckpt"])
        ['1-gatv2', '2-gatv2']
    """
    paths = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, paths)) + 1):
        ends = [[component for component in path[-count:] if component != "/"] for path in paths]
        names = [
            "-".join(re.sub(ENDINGS, "", component).strip(".-_") or component for component in end) for end in ends
        ]
        if len({*names, *BASELINES}) == len(names) + len(BASELINES):
            return names
    raise UserError(
        f"`systems` must have unique names other than those of the baselines {BASELINES}, got {list(sources)}. Write "
        "a path with its parent folder, or rename it"
    )


def check_run_files(systems: Sequence[SystemSpec], num_datasets: int) -> None:
    """Check that no run file of a single data set is evaluated on several data sets.

    Args:
        systems: Systems to evaluate.
        num_datasets: Number of data sets.

    Raises:
        UserError: If there are several data sets and the path of a run file does not contain ``{dataset}``.
    """
    for system in systems:
        if system.kind == RUN_FILE and DATASET not in system.source and num_datasets > 1:
            raise UserError(
                f"`systems`: the run file {system.source} is for one data set, but `datasets` names {num_datasets}. "
                f"Replace the name of the data set in its path by {DATASET}"
            )


def check_pipeline_settings(systems: Sequence[SystemSpec], settings: Mapping[str, Any]) -> None:
    """Check that overrides of settings belong to pipelines of the evaluation.

    Args:
        systems: Systems to evaluate.
        settings: Overrides of settings, by label of the pipeline.

    Raises:
        UserError: If an entry is not a mapping, or if its label is not that of a pipeline.
    """
    for name, changes in settings.items():
        if not isinstance(changes, Mapping):
            raise UserError(f"`settings.{name}` must be a mapping such as settings.{name}.KEY=..., got {changes!r}")
    pipelines = sorted(system.label for system in systems if system.kind == PIPELINE)
    if unknown := sorted(set(settings) - set(pipelines)):
        raise UserError(f"`settings` must name pipelines in `systems`, {pipelines}, got {unknown}")
