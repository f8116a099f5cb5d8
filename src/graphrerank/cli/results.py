"""The files of a run of ``evaluate.py``: its study, reports, metrics and capsule."""

from collections.abc import Sequence

from graphrerank.cli.session import Session
from graphrerank.evaluation.across import across_datasets
from graphrerank.evaluation.capsule import make_capsule, write_capsule
from graphrerank.evaluation.metrics_json import write_metrics
from graphrerank.evaluation.run_files import write_runs
from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_files import write_study_files
from graphrerank.evaluation.study_plan import StudyPlan
from graphrerank.evaluation.study_report import print_study
from graphrerank.models.checkpoint import library_versions


class Results:
    """Prints the table of each data set, and keeps all files of the run up to date with the results so far."""

    def __init__(self, session: Session, plan: StudyPlan, *, prompts: Sequence[str] = ()) -> None:
        self._session, self._plan = session, plan
        self._prompts = {"prompts": ", ".join(prompts)} if prompts else {}  # that a language model is told
        self._datasets: list[DatasetStudy] = []

    def add(self, dataset: DatasetStudy, node_ids: Sequence[str]) -> None:
        """Print a data set's table, and write run files, study, reports, metrics and capsule."""
        session, plan = self._session, self._plan
        self._datasets.append(dataset)
        study = Study(
            command=session.command,
            datasets={dataset.name: dataset for dataset in self._datasets},
            across=across_datasets(self._datasets, permutations=plan.resamples, seed=plan.seed),
            settings={
                **{"ties": plan.ties, "resamples": plan.resamples, "level": plan.level, "seed": plan.seed},
                **self._prompts,
            },
        )
        print_study(dataset, ties=plan.ties)
        write_runs(session.run_dir / "runs", dataset, node_ids)
        counts = session.encoder_counts
        write_metrics(session.run_dir / "metrics.json", self._datasets, study.across, encoder_counts=counts)
        write_study_files(session.run_dir, study)
        config, versions = session.config, library_versions()
        capsule = make_capsule(session.run_dir, study, overrides=session.overrides, config=config, versions=versions)
        write_capsule(session.run_dir, capsule)
