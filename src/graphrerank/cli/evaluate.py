"""``graphrerank evaluate``: evaluate checkpoints, pipelines and run files on data sets, and print a table of each."""

import json
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.command import CommandContext
from graphrerank.cli.jobs import run_job
from graphrerank.config.compose import group_choices
from graphrerank.evaluation.compare import metric_differences
from graphrerank.evaluation.evaluate import evaluate as evaluate_systems
from graphrerank.evaluation.measuring import PIPELINE_MEASURES
from graphrerank.evaluation.plan import CHECKPOINT, name_systems, short_names
from graphrerank.utils.checks import UserError
from graphrerank.utils.run_files import METRICS
from graphrerank.utils.safe_loading import MAX_LARGE_BYTES, read_json


def run(cfg: DictConfig) -> Path | None:
    """Run the job of ``conf/evaluate.yaml``, which is :func:`evaluate` unless an experiment replaces it.

    Args:
        cfg: Settings of ``conf/evaluate.yaml``.

    Returns:
        Run folder, or None if the job wrote none.
    """
    return run_job(cfg)


def evaluate(command: CommandContext) -> Path:
    """Evaluate all systems of the command on every data set, and compare the last system with the others.

    If ``expect`` is set and the metrics differ from those of the earlier run, the command exits with status 1.

    Args:
        command: Running command.

    Returns:
        Run folder.
    """
    cfg = command.cfg
    expected = None if cfg.expect is None else read_metrics(Path(cfg.expect))
    settings: Any = OmegaConf.to_container(cfg.settings)
    conditions: Any = OmegaConf.to_container(cfg.filter)
    significance_measures = renamed_setting(cfg, "tested", "significance_measures")
    edge_ablations = renamed_setting(cfg, "counterfactuals", "edge_ablations")
    systems, are_pipelines = named_systems(command)
    result = evaluate_systems(
        systems,
        list(cfg.datasets) if cfg.data is None else [command.chosen("data")],
        split=cfg.split,
        edges=cfg.edges,
        retriever=command.chosen("retriever"),
        encoder=command.chosen_encoder(),
        pair_encoder=command.chosen("pair_encoder"),
        cross_encoder_top_k=cfg.cross_encoder_top_k,
        scorers=list(cfg.scorers),
        measures=list(cfg.measures) or (PIPELINE_MEASURES if are_pipelines else ()),
        significance_measures=significance_measures,
        ties=cfg.ties,
        resamples=cfg.resamples,
        edge_ablations=edge_ablations,
        baselines=list(cfg.baselines),
        settings=settings,
        stages=[] if cfg.answers is None else [instantiate(cfg.answers)],
        filter=conditions,
        num_queries=cfg.num_queries,
        seed=cfg.seed,
        run_dir=command.run_dir,
        parts=command.parts,
        command=command.line,
        config=command.config,
    )
    track_checkpoints(command, systems)
    if expected is not None:
        differences = metric_differences(expected, json.loads(json.dumps(result.metrics())))
        print("\n".join([f"differs from {cfg.expect}:", *differences]) if differences else f"same as {cfg.expect}")
        if differences:
            sys.exit(1)
    return command.run_dir


def track_checkpoints(command: CommandContext, systems: Any) -> None:
    """Record the checkpoints that the evaluation has read, for the loggers.

    Args:
        command: Running command.
        systems: Systems in the form that :func:`named_systems` returns.
    """
    for system in name_systems(systems, group_choices("pipeline")):
        if system.kind == CHECKPOINT:
            command.tracking.reads_checkpoint(system.source)
    command.tracking.reads_checkpoints_of(command.cfg.settings)
    command.tracking.reads_checkpoints_of(command.cfg.pipeline)


def renamed_setting(cfg: DictConfig, old: str, new: str) -> list[str]:
    """Return a setting that was renamed, with a warning if the command uses the old name.

    Args:
        cfg: Configuration of the command.
        old: Deprecated name, whose default is null.
        new: Current name.

    Returns:
        Value of the old setting if it is not null, otherwise value of the new setting.
    """
    if cfg[old] is None:
        return list(cfg[new])
    warnings.warn(
        f"the setting `{old}` is deprecated and will be removed in 0.5.0. Use `{new}`", DeprecationWarning, stacklevel=2
    )
    return list(cfg[old])


def named_systems(command: CommandContext) -> tuple[Any, bool]:
    """Return the systems to evaluate.

    Args:
        command: Running command.

    Returns:
        Tuple of the systems and whether they are pipelines. The systems are one checkpoint, a list of systems, a
        mapping from row of the table to system, or a mapping from name to pipeline.

    Raises:
        ValueError: If no system is named, a pipeline is unknown, or checkpoints and pipelines are mixed.
    """
    cfg = command.cfg
    checkpoint: Any = None if OmegaConf.is_missing(cfg, "checkpoint") else cfg.checkpoint
    checkpoints = _listed_checkpoints(checkpoint)
    sources = [str(source) for source in (*cfg.systems, *checkpoints)]
    pipelines = _pipeline_names(command)
    if not pipelines and not sources:
        raise UserError("`checkpoint`, `systems` or `pipeline` must name a system to evaluate, got none")
    if pipelines:
        if sources:
            raise UserError(
                f"`checkpoint` and `systems` must not be combined with `pipeline` or `pipelines`, got {sources}. "
                "Add the pipelines to `systems` instead"
            )
        return _chosen_pipelines(command, pipelines), True
    if OmegaConf.is_dict(checkpoint):
        systems = [str(system) for system in cfg.systems]
        rows = dict(zip(short_names(systems), systems, strict=True)) if systems else {}
        return {**rows, **checkpoint}, False
    is_list = bool(cfg.systems) or OmegaConf.is_list(checkpoint)
    return sources if is_list else sources[0], False


def _listed_checkpoints(checkpoint: Any) -> list[Any]:
    """Return the checkpoints of the setting: None, one checkpoint, a list, or a mapping from row to checkpoint."""
    if checkpoint is None:
        return []
    if OmegaConf.is_dict(checkpoint):
        return list(checkpoint.values())
    return list(checkpoint) if OmegaConf.is_list(checkpoint) else [checkpoint]


def _pipeline_names(command: CommandContext) -> list[str]:
    """Return the names of the pipelines to evaluate. The choice of the group ``pipeline`` is the last one."""
    cfg = command.cfg
    if cfg.pipeline is None:
        return list(cfg.pipelines)
    main = command.choice("pipeline")
    return [*(name for name in cfg.pipelines if name != main), main]


def _chosen_pipelines(command: CommandContext, names: Sequence[str]) -> dict[str, Any]:
    """Return the pipelines by name, and check their names and settings."""
    cfg = command.cfg
    main = None if cfg.pipeline is None else command.choice("pipeline")
    if unknown := [name for name in names if name != main and name not in group_choices("pipeline")]:
        raise UserError(f"`pipelines` must name files of conf/pipeline, got {unknown[0]!r}")
    if main in cfg.settings:
        raise UserError(f"`settings.{main}` must not be used with pipeline={main}. Use pipeline.KEY=... instead")
    if main is not None and (missing := sorted(OmegaConf.missing_keys(cfg.pipeline))):
        key = missing[0].replace("[", ".").replace("]", "").removeprefix("pipeline.")
        raise UserError(f"`pipeline.{key}` must be set for pipeline={main}")
    return {name: command.chosen("pipeline") if name == main else name for name in names}


def read_metrics(path: Path) -> dict[str, Any]:
    """Read the metrics of an earlier run.

    Args:
        path: File ``metrics.json`` or its run folder.

    Returns:
        Content of the file.

    Raises:
        ValueError: If the file is missing or is not a ``metrics.json`` of ``graphrerank evaluate``.
    """
    path = path / METRICS if path.is_dir() else path
    try:
        content: dict[str, Any] = read_json(path, max_bytes=MAX_LARGE_BYTES)
        content["datasets"].items()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        needed = "a metrics.json of graphrerank evaluate, or its run folder"
        raise UserError(f"`expect` must be {needed}, got {path}: {error}") from error
    return content
