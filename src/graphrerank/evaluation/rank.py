"""Rank the queries of a data set with all systems. There is one runner per kind of system."""

from collections.abc import Sequence
from dataclasses import replace

from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.loading import LoadedSystems
from graphrerank.evaluation.plan import RUN_FILE, PlannedEvaluation
from graphrerank.evaluation.runners.base import BASELINE_ROWS, RankingTask, SystemRunner
from graphrerank.evaluation.runners.checkpoint import CheckpointRunner
from graphrerank.evaluation.runners.pipeline import PipelineRunner
from graphrerank.evaluation.runners.run_file import RunFileRunner
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, System


def build_runners(
    planned: PlannedEvaluation,
    loaded: LoadedSystems,
    components: ComponentFactory,
    *,
    scorers: Sequence[str | System] = (),
    seed: int = 0,
) -> list[SystemRunner]:
    """Build a runner for each kind of system that is evaluated.

    Args:
        planned: Checked arguments of the evaluation.
        loaded: Loaded systems.
        components: Factory of components.
        scorers: Additional baselines: names of files of ``conf/scorer``, or systems.
        seed: Random seed for shuffled edges.

    Returns:
        Runners of checkpoints, pipelines and run files. Kinds without a system have no runner.
    """
    systems = [
        row if isinstance(row, System) else System(row, components.build("scorer", row).score) for row in scorers
    ]
    runners: list[SystemRunner] = []
    if loaded.checkpoints:
        runners.append(
            CheckpointRunner(
                loaded.checkpoints,
                components,
                pair_encoder=loaded.pair_encoder,
                scorers=systems,
                edge_ablations=planned.edge_ablations,
                baselines=planned.baselines,
                seed=seed,
            )
        )
    if loaded.pipelines:
        runners.append(
            PipelineRunner(
                loaded.pipelines,
                components,
                retriever=loaded.retriever.component,
                encoder=loaded.encoder.component,
                pair_encoder=loaded.pair_encoder,
            )
        )
    if run_files := planned.of_kind(RUN_FILE):
        runners.append(RunFileRunner(run_files))
    return runners


def rank_systems(
    task: RankingTask, runners: Sequence[SystemRunner], labels: Sequence[str], *, notes: Sequence[str] = ()
) -> RankedDataset:
    """Rank the queries of a data set with all systems.

    Args:
        task: Data set and queries.
        runners: Runners of the systems.
        labels: Labels of all systems, in the order of the tables' rows. The last one is the primary system.
        notes: Sentences for the report.

    Returns:
        Rankings of all systems, baselines first.

    Raises:
        UserError: If two rows have the same name.
    """
    rows: dict[str, list[RankedSystem]] = {}
    for runner in runners:
        rows |= runner.run(task)
    ordered = [row for label in (BASELINE_ROWS, *labels) for row in rows.get(label, [])]
    candidates = None
    if any(runner.reranks_candidates for runner in runners):
        candidates = task.required_preparation.ranking.select(task.queries)
    return RankedDataset(task.dataset, task.split, task.queries, ordered, candidates, notes)


def with_notes(ranked: RankedDataset, notes: Sequence[str]) -> RankedDataset:
    """Return a copy of the rankings with additional notes.

    Args:
        ranked: Rankings of all systems.
        notes: Sentences for the report, which are appended to the existing notes.
    """
    return replace(ranked, notes=[*ranked.notes, *notes])
