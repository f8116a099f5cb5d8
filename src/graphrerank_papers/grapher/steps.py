"""The steps of GraphER's tables: train a model, or take a frozen operator, and evaluate it; many at once."""

import math
import multiprocessing
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphrerank.cli.job_session import TrainingSession
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.reranking import measure_queries
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank_papers.grapher.page import PAGE_MEASURES
from graphrerank_papers.steps import do_step, read_step, step_file


@dataclass(frozen=True)
class Step:
    """Train a model, or take a frozen operator, and evaluate it."""

    name: str  # what progress lines and files call it
    system: str  # `retriever`, `ppr` or `gcs`, or the trained model's name
    overrides: tuple[str, ...]  # hydra's overrides that its configuration has beside the run's own
    train: tuple[str, ...]  # data sets to train on, of `TrainingSession.training_names`; none for a frozen operator
    judge: tuple[str, ...]  # data sets to judge on: names of `conf/data`, or paths of data set folders
    split: str


@dataclass
class Work:
    """State shared by all steps; a forked process inherits it."""

    session: TrainingSession
    operators: dict[str, float] = field(default_factory=dict)  # restart probabilities of the frozen operators
    # data sets with candidates, by the settings of the candidates and name
    prepared: dict[tuple[str, str], PreparedDataset] = field(default_factory=dict)

    def variant(self, step: Step) -> TrainingSession:
        """Compose a step's run."""
        return self.session.variant(step.overrides, system=step.system, mix=step.train)

    def dataset(self, session: TrainingSession, name: str) -> PreparedDataset:
        """Return a data set by name, with a run's candidates."""
        key = (session.candidates_key, name)
        if key not in self.prepared:
            self.prepared[key] = session.dataset(name, splits=())  # some are trained on, others judged
        return self.prepared[key]

    def file(self, step: Step) -> Path:
        """Return the file that holds a step's result."""
        session = self.variant(step)
        aside = ("job", "data", "num_threads", "pair_encoder")  # no model of the tables reads pairs
        config = {key: entry for key, entry in session.config.items() if key not in aside}
        data = [fingerprints(self.dataset(session, name)) for name in (*step.train, *step.judge)]
        decisive = [config, data, [*step.judge], step.split, None if step.train else self.operators]
        return step_file(self.session.run_dir, step.name, decisive)


def do_steps(work: Work, steps: Iterable[Step], *, workers: int) -> dict[Step, dict[str, Any]]:
    """Do the steps that have left no file yet, in ``workers`` processes, and read the results of all.

    Returns:
        By step: ``values``, data set -> measure -> a number per query (None = does not count); ``parameters``;
        ``train_seconds`` and ``seconds`` in all.
    """
    files = {step: work.file(step) for step in steps}
    waiting = [step for step, file in files.items() if not file.is_file()]
    for count, step in enumerate(_finished(work, waiting, min(workers, len(waiting))), 1):
        print(f"[{count}/{len(waiting)}] {step.name}: {read_step(files[step])['seconds']:.0f} s", flush=True)
    return {step: read_step(file) for step, file in files.items()}


def fingerprints(prepared: PreparedDataset) -> list[str | None]:
    """List everything that a data set's results depend on, besides its retriever's settings."""
    return [prepared.dataset.fingerprint, prepared.encoder_fingerprint]


_shared: Work | None = None  # in a worker process: that of the process it was forked from


def _share(work: Work) -> None:
    global _shared
    _shared = work


def _do_shared(step: Step) -> None:
    assert _shared is not None
    _do(_shared, step)


def _finished(work: Work, steps: Sequence[Step], workers: int) -> Iterator[Step]:
    """Do steps and yield each when it is done. Processes are forked, and so share the data sets' memory."""
    if workers <= 1:
        for step in steps:
            _do(work, step)
            yield step
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_share, initargs=(work,)) as pool:
        futures = {pool.submit(_do_shared, step): step for step in steps}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _do(work: Work, step: Step) -> None:
    file = work.file(step)
    do_step(file, lambda: _train_and_judge(work, step, work.session.run_dir / "models" / file.stem))


def _train_and_judge(work: Work, step: Step, folder: Path) -> dict[str, Any]:
    begin = time.perf_counter()
    session, models = work.variant(step), {}
    if step.train:
        parts = {name: work.dataset(session, name) for name in session.training_names}
        models[step.system] = load_checkpoint(session.train(folder, parts, work.operators)).model
    train_seconds = time.perf_counter() - begin
    system = next(row for row in session.systems(models, work.operators) if row.name == step.system)
    values: dict[str, Mapping[str, list[float | None]]] = {}
    for name in step.judge:
        prepared = work.dataset(session, name)
        if prepared.dataset.name in values:
            raise ValueError(f"data sets to judge on must have different names, got {prepared.dataset.name!r} twice")
        measured = measure_queries(prepared, step.split, system, measures=PAGE_MEASURES)
        values[prepared.dataset.name] = {
            measure: [None if math.isnan(score) else score for score in per_query.tolist()]
            for measure, per_query in measured.items()
        }
    return {
        "step": step.name,
        "overrides": step.overrides,
        "parameters": sum(p.numel() for model in models.values() for p in model.parameters()),
        "train_seconds": train_seconds,
        "seconds": time.perf_counter() - begin,
        "values": values,
    }
