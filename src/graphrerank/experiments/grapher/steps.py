"""A long job in steps: each leaves a JSON file when it is done, so that a run that was stopped goes on where it was.

The file's name holds a hash of the step's configuration and data: a changed setting repeats the steps that it concerns.
"""

import json
import math
import multiprocessing
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.compose import portable_config
from graphrerank.cli.session import Session
from graphrerank.cli.train import prepare_parts, train_one
from graphrerank.data import PreparedDataset
from graphrerank.evaluation import measure_queries
from graphrerank.experiments.grapher.page import PAGE_MEASURES
from graphrerank.files import hash_json, write_text
from graphrerank.models import load_checkpoint


@dataclass(frozen=True)
class Step:
    """Train a model, or take a frozen operator, and judge it.

    Attributes:
        name: What progress lines and files call it.
        system: ``base_ranking``, ``ppr`` or ``gcs``, or the trained model's name.
        overrides: Hydra's overrides that tell its job from the run's own.
        train: Data sets to train on, of those that the job's ``data`` and ``mix`` name; none for a frozen operator.
        judge: Data sets to judge on: names of ``conf/data``, or paths of data set folders.
        split: Their split.
    """

    name: str
    system: str
    overrides: tuple[str, ...]
    train: tuple[str, ...]
    judge: tuple[str, ...]
    split: str


@dataclass
class Work:
    """What all steps share; processes get it when they part from this one.

    Attributes:
        cfg: The run's configuration.
        arguments: The overrides it was called with.
        operators: Restart probabilities of the frozen operators.
        prepared: Data sets with candidates, by candidates' settings and name.
    """

    cfg: DictConfig
    arguments: Sequence[str]
    operators: dict[str, float] = field(default_factory=dict)
    prepared: dict[str, dict[str, PreparedDataset]] = field(default_factory=dict)

    @property
    def run_dir(self) -> Path:
        """The run folder."""
        return Path(self.cfg.paths.run_dir)

    @property
    def data_name(self) -> str:
        """Name of the data set that the operators are tuned on, and all models trained on."""
        return str(HydraConfig.get().runtime.choices["data"])

    def job(self, step: Step) -> DictConfig:
        """Compose a step's configuration: the run's, and what the step changes."""
        job = compose("train", overrides=[*self.arguments, *step.overrides])
        job.paths, job.system = self.cfg.paths, step.system
        job.mix = {name: entry for name, entry in (self.cfg.mix or {}).items() if name in step.train}
        return job

    def parts(self, job: DictConfig) -> dict[str, PreparedDataset]:
        """Give the data sets that a job can be trained on, ``data`` first."""
        key = _candidates_key(job)
        if key not in self.prepared:
            whole = deepcopy(job)
            whole.mix = self.cfg.mix  # also what this job leaves out
            self.prepared[key] = prepare_parts(whole, reads_vectors=True)
        return {name: self.prepared[key][name] for name in (self.data_name, *(job.mix or {}))}

    def dataset(self, job: DictConfig, name: str) -> PreparedDataset:
        """Give a data set by name, with the candidates of a job."""
        names = next(iter(self.parts(job).values())).feature_names
        prepared = self.prepared[_candidates_key(job)]
        if name not in prepared:
            session = Session(job)
            one = session.prepare(session.group("data", name), job.encoder, job.retriever)
            prepared[name] = one.with_features(names)
        return prepared[name]

    def file(self, step: Step) -> Path:
        """Where a step leaves what it found."""
        job = self.job(step)
        aside = ("tables", "data", "num_threads", "pair_encoder")  # no model of the tables reads pairs
        config = {key: entry for key, entry in portable_config(job).items() if key not in aside}
        data = [fingerprints(self.dataset(job, name)) for name in (*step.train, *step.judge)]
        parts = [config, data, [*step.judge], step.split, None if step.train else self.operators]
        return self.run_dir / "steps" / f"{slug(step.name)}-{hash_json(parts)}.json"


def do_steps(work: Work, steps: Iterable[Step], *, workers: int) -> dict[Step, dict[str, Any]]:
    """Do the steps that have left no file yet, and read what all of them found.

    Args:
        work: What they share.
        steps: The steps, independent of each other.
        workers: Processes to share them among; 1: this one alone.

    Returns:
        By step: ``values``, data set -> measure -> a number per query (None = does not count); ``parameters``;
        ``train_seconds`` and ``seconds`` in all.
    """
    files = {step: work.file(step) for step in steps}
    waiting = [step for step, file in files.items() if not file.is_file()]
    for number, step in enumerate(_finished(work, waiting, min(workers, len(waiting))), 1):
        print(f"[{number}/{len(waiting)}] {step.name}: {_read(files[step])['seconds']:.0f} s", flush=True)
    return {step: _read(file) for step, file in files.items()}


def num_workers(cfg: DictConfig) -> int:
    """Choose the number of processes: as the plan says, else one per core, or one alone with a GPU.

    Raises:
        ValueError: If several processes are asked to share a GPU.
    """
    on_gpu = Session(cfg).device.type == "cuda"
    workers = cfg.tables.workers or (1 if on_gpu else os.cpu_count() or 1)
    if on_gpu and workers > 1:
        raise ValueError(f"`tables.workers` must be 1 with a GPU, got {workers}; device=cpu trainer.accelerator=cpu")
    return int(workers)


def fingerprints(prepared: PreparedDataset) -> list[str | None]:
    """Tell what a data set's numbers hang on, besides its retriever's settings."""
    return [prepared.dataset.fingerprint, prepared.encoder_fingerprint]


def _candidates_key(job: DictConfig) -> str:
    return str([OmegaConf.to_yaml(job.retriever, resolve=True), job.features.text_match])


def slug(name: str) -> str:
    """Write a name so that it can be a file's.

    Example:
        >>> slug("GATv2 scores, loss bce")
        'gatv2-scores-loss-bce'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


_shared: Work | None = None  # in a worker process: what it was born with


def _share(work: Work) -> None:
    global _shared
    _shared = work


def _do_shared(step: Step) -> None:
    assert _shared is not None
    _do(_shared, step)


def _finished(work: Work, steps: Sequence[Step], workers: int) -> Iterator[Step]:
    """Do steps and give each when it is done. Processes are forked, and so share the data sets' memory."""
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
    begin = time.perf_counter()
    job, file = work.job(step), work.file(step)
    models = {}
    if step.train:
        job.paths.run_dir = str(work.run_dir / "models" / file.stem)
        train_one(job, work.parts(job), work.operators, [])
        best = Path(job.paths.run_dir) / step.system / "checkpoints" / "best.ckpt"
        models[step.system] = load_checkpoint(best).model
    train_seconds = time.perf_counter() - begin
    rows = Session(job).systems(models, work.operators)
    system = next(row for row in rows if row.name == step.system)
    values: dict[str, dict[str, list[float | None]]] = {}
    for name in step.judge:
        prepared = work.dataset(job, name)
        if prepared.dataset.name in values:
            raise ValueError(f"data sets to judge on must have different names, got {prepared.dataset.name!r} twice")
        _, measured = measure_queries(prepared, step.split, system, measures=PAGE_MEASURES)
        values[prepared.dataset.name] = {
            measure: [None if math.isnan(number) else number for number in per_query.tolist()]
            for measure, per_query in measured.items()
        }
    result = {
        "step": step.name,
        "overrides": step.overrides,
        "parameters": sum(p.numel() for model in models.values() for p in model.parameters()),
        "train_seconds": train_seconds,
        "seconds": time.perf_counter() - begin,
        "values": values,
    }
    write_text(file, json.dumps(result) + "\n")


def _read(file: Path) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: damaged step ({error}); delete this file and run again") from error
    return result
