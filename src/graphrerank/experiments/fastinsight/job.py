"""``python evaluate.py experiment=fastinsight_curves``: quality against time, budget and FastInsight's two weights."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig

from graphrerank.cli.compose import compose_group
from graphrerank.cli.session import Session
from graphrerank.evaluation import judge_pipelines
from graphrerank.evaluation.judge_pipelines import PIPELINE_MEASURES
from graphrerank.experiments.fastinsight.curves import (
    Curves,
    curves_json,
    draw_curves,
    gain_correlations,
    render_curves,
)
from graphrerank.files import write_json, write_text

VARIED = "fastinsight"  # whose settings are varied
SEARCH = "vector_search"
START = 10  # nodes of the vector search that a pipeline begins with


def write_curves(cfg: DictConfig) -> Path:
    """Measure, draw and print the curves of every data set named.

    Returns:
        The run folder, which is also the last line printed.

    Raises:
        ValueError: If no budget is given, or a setting to vary is not one of FastInsight's steps.
    """
    plan, run_dir = cfg.curves, Path(cfg.paths.run_dir)
    if not plan.budgets:
        raise ValueError("`curves.budgets` must name at least one budget, got []")
    found: list[Curves] = []
    session = Session(cfg)
    for name in session.dataset_names():
        prepared, build = session.prepare_for_pipelines(
            session.data(name), retriever=cfg.retriever, pair_encoder=cfg.pair_encoder
        )
        budget, settings = max(plan.budgets), {key: list(values) for key, values in plan.settings.items()}
        groups: dict[tuple[str, Any], DictConfig] = {
            (SEARCH, START): compose_group(cfg, "pipeline", SEARCH, budget=START)
        }
        for system in plan.pipelines:
            for number in plan.budgets:
                groups[system, number] = compose_group(cfg, "pipeline", system, budget=number)
        for setting, values in settings.items():
            for value in values:
                groups[setting, value] = with_setting(
                    compose_group(cfg, "pipeline", VARIED, budget=budget), setting, float(value)
                )
        pipelines = {f"{kind} {value:g}": build(group) for (kind, value), group in groups.items()}
        measures = tuple(dict.fromkeys((*PIPELINE_MEASURES, f"R@{budget}")))
        result = judge_pipelines(
            prepared, cfg.split, pipelines, measures=measures, limit=cfg.num_queries, progress=True
        ).pipelines
        curves = Curves(
            dataset=prepared.dataset.name,
            split=cfg.split,
            num_queries=len(next(iter(result.values())).ranking.nodes),
            budgets={
                system: {number: result[f"{system} {number:g}"] for number in plan.budgets} for system in plan.pipelines
            },
            settings={
                setting: {value: result[f"{setting} {value:g}"] for value in values}
                for setting, values in settings.items()
            },
            defaults=_defaults(compose_group(cfg, "pipeline", VARIED), settings),
            correlations={
                system: gain_correlations(
                    result[f"{SEARCH} {START:g}"], result[f"{system} {budget:g}"], recall=f"R@{budget}"
                )
                for system in plan.pipelines
            },
        )
        found.append(curves)
        draw_curves(run_dir / f"{curves.dataset}.png", curves)
        content = {"datasets": {one.dataset: curves_json(one) for one in found}}
        write_json(run_dir / "metrics.json", content)
        report = render_curves(found, plots=[f"{one.dataset}.png" for one in found])
        write_text(run_dir / "report.md", report)
    print(report, end="\n\n")
    print(run_dir, flush=True)
    return run_dir


def with_setting(group: DictConfig, name: str, value: float) -> DictConfig:
    """Set a setting of all steps of a pipeline that have it.

    Raises:
        ValueError: If none has.
    """
    if not _settings(group, name):
        raise ValueError(f"`curves.settings` must name settings of the steps of pipeline {VARIED!r}, got {name!r}")
    for step in _settings(group, name):
        step[name] = value
    return group


def _settings(group: DictConfig, name: str) -> list[DictConfig]:
    """List the steps of a pipeline that have a setting, those within steps too."""
    steps = group.get("steps") or ListConfig([])
    inner = [found for step in steps for found in _settings(step, name)]
    return [*([group] if name in group else []), *inner]


def _defaults(group: DictConfig, settings: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(_settings(group, name)[0][name]) for name in settings}
