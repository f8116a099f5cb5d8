"""``python evaluate.py experiment=fastinsight_curves``: quality against time, budget and FastInsight's two weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphrerank.cli.job_session import Group, JobSession, PipelineFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.measuring import TOPOLOGICAL_RECALL, judged_queries
from graphrerank.evaluation.ranked_system import RankedDataset
from graphrerank.evaluation.run_pipelines import run_pipelines
from graphrerank.evaluation.study_plan import PIPELINE_MEASURES, StudyPlan
from graphrerank.files import write_json, write_text
from graphrerank_papers.fastinsight.curves import (
    QUALITY,
    Curves,
    curves_json,
    draw_curves,
    gain_correlations,
    render_curves,
)
from graphrerank_papers.fastinsight.quartiles import draw_quartiles, topological_quartiles

VARIED = "fastinsight"  # whose settings are varied
SEARCH = "vector_search"
START = 10  # nodes of the vector search that a pipeline begins with


@dataclass(frozen=True, kw_only=True)
class FastInsightCurves:
    """The job; ``conf/experiment/fastinsight_curves.yaml`` describes its settings."""

    pipelines: Sequence[str]
    budgets: Sequence[int]
    settings: Mapping[str, Sequence[float]]
    split: str
    num_queries: int | None = None

    def __post_init__(self) -> None:
        if not self.budgets:
            raise ValueError("`job.budgets` must name at least one budget, got []")

    def __call__(self, session: JobSession) -> Path:
        """Measure, draw and print the curves of every data set named."""
        run_dir = session.run_dir
        default = session.group("pipeline", VARIED)
        for setting in self.settings:
            if not _steps_with(default, setting):
                raise ValueError(
                    f"`job.settings` must name settings of the steps of pipeline {VARIED!r}, got {setting!r}"
                )
        measured: list[Curves] = []
        for name in session.dataset_names():
            prepared, build = session.prepare_for_pipelines(
                session.data(name), retriever=session.chosen("retriever"), pair_encoder=session.chosen("pair_encoder")
            )
            curves = self._measure(session, prepared, build, default)
            measured.append(curves)
            draw_curves(run_dir / f"{curves.dataset}.png", curves)
            draw_quartiles(
                run_dir / f"{curves.dataset}_quartiles.png",
                curves.quartiles,
                title=f"{curves.dataset} {curves.split}, {curves.num_queries:,} queries",
            )
            write_json(
                run_dir / "metrics.json",
                {"datasets": {finished.dataset: curves_json(finished) for finished in measured}},
            )
            report = render_curves(measured, plots=[f"{finished.dataset}.png" for finished in measured])
            write_text(run_dir / "report.md", report)
        print(report)
        return run_dir

    def _measure(
        self, session: JobSession, prepared: PreparedDataset, build: PipelineFactory, default: Group
    ) -> Curves:
        budget = max(self.budgets)
        groups: dict[tuple[str, float], Group] = {
            (SEARCH, START): session.group("pipeline", SEARCH, budget=START),
            **{
                (system, size): session.group("pipeline", system, budget=size)
                for system in self.pipelines
                for size in self.budgets
            },
            **{
                (setting, value): with_setting(session.group("pipeline", VARIED, budget=budget), setting, float(value))
                for setting, values in self.settings.items()
                for value in values
            },
        }
        pipelines = {f"{kind} {value:g}": build(group) for (kind, value), group in groups.items()}
        plan = StudyPlan(tuple(dict.fromkeys((*PIPELINE_MEASURES, f"R@{budget}"))))
        queries = judged_queries(prepared.dataset, self.split, self.num_queries)
        ranked = run_pipelines(prepared, queries, pipelines, progress=True)
        result = build_study(RankedDataset(prepared.dataset, self.split, queries, ranked), plan).systems
        return Curves(
            dataset=prepared.dataset.name,
            split=self.split,
            num_queries=len(queries),
            budgets={
                system: {size: result[f"{system} {size:g}"] for size in self.budgets} for system in self.pipelines
            },
            settings={
                setting: {float(value): result[f"{setting} {value:g}"] for value in values}
                for setting, values in self.settings.items()
            },
            defaults={setting: float(_steps_with(default, setting)[0][setting]) for setting in self.settings},
            correlations={
                system: gain_correlations(
                    result[f"{SEARCH} {START:g}"], result[f"{system} {budget:g}"], recall=f"R@{budget}"
                )
                for system in self.pipelines
            },
            quartiles=topological_quartiles(
                result[f"{SEARCH} {START:g}"].values[TOPOLOGICAL_RECALL],
                {system: result[f"{system} {budget:g}"].values[QUALITY] for system in self.pipelines},
            ),
        )


def with_setting(group: Group, name: str, value: float) -> Group:
    """Set a setting of all steps of a pipeline that have it."""
    for step in _steps_with(group, name):
        step[name] = value
    return group


def _steps_with(group: Group, name: str) -> list[Any]:
    """List the steps of a pipeline that have a setting, those within steps too."""
    within = [inner for step in group.get("steps", ()) for inner in _steps_with(step, name)]
    return [*([group] if name in group else []), *within]
