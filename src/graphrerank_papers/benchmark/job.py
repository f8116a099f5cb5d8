"""``python evaluate.py experiment=benchmark``: every data set that the folder has, beside what is published."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from graphrerank.checks import check_counts
from graphrerank.cli.job_session import Group, JobSession, PipelineFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.measuring import judged_queries, measure_ranking, parse_measures
from graphrerank.evaluation.run_pipelines import run_pipelines
from graphrerank.files import hash_files, write_json, write_text
from graphrerank.models.checkpoint import load_primary
from graphrerank_papers.benchmark.page import MeasuredRow, MeasuredSet, render_benchmark
from graphrerank_papers.benchmark.published import OURS, read_published
from graphrerank_papers.benchmark.training_sets import has_seen, training_sets
from graphrerank_papers.steps import do_step, step_file

COMPARED = "R@5"  # what is published

Record = TypeVar("Record")


@dataclass(frozen=True, kw_only=True)
class BenchmarkSet:
    """A data set, and what published numbers are measured on."""

    passages: int  # of the corpus that others publish on
    questions: int  # that others publish on
    train: tuple[str, ...] = ()  # data sets that are train splits of this one, beside itself
    data: str | None = None  # a file of conf/data, or a folder's path; None: the set's name
    of: str | None = None  # the set that this is a part of, whose published numbers it is shown beside
    skip: tuple[str, ...] = ()  # keys of rows that are not run

    def name(self, key: str) -> str:
        """Return what the page calls it: its file of ``conf/data``, or its key."""
        return key if self.data is None or "/" in self.data else self.data


@dataclass(frozen=True, kw_only=True)
class BenchmarkRow:
    """A system that is run."""

    title: str  # what the page calls it
    pipeline: str  # a file of conf/pipeline
    retriever: str = "dense"  # a file of conf/retriever: of searches that name none
    checkpoint: str | None = None  # of the pipeline's reranker; None: the pipeline's own, if it has one
    published: str | None = None  # the published method that this is, over our embedder


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The job; ``conf/experiment/benchmark.yaml`` describes its settings."""

    page: str
    sets: Mapping[str, Mapping[str, Any]]
    rows: Mapping[str, Mapping[str, Any]]
    measures: Sequence[str]
    split: str
    num_queries: int | None = None
    published: str | None = None
    notes: Sequence[str] = ()
    _prepared: dict[tuple[str, str], tuple[PreparedDataset, PipelineFactory]] = field(default_factory=dict, init=False)
    _sets: Mapping[str, BenchmarkSet] = field(init=False)
    _rows: Mapping[str, BenchmarkRow] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_sets", _records(BenchmarkSet, self.sets, "job.sets"))
        object.__setattr__(self, "_rows", _records(BenchmarkRow, self.rows, "job.rows"))
        check_counts(num_queries=self.num_queries)
        for name, known in self._sets.items():
            if strangers := set(known.skip) - set(self._rows):
                raise ValueError(f"`job.sets.{name}.skip` must be of `job.rows` {list(self.rows)}, got {strangers}")
        if COMPARED not in parse_measures(self.measures):
            raise ValueError(f"`job.measures` must hold {COMPARED}, which is published, got {list(self.measures)}")

    def __call__(self, session: JobSession) -> Path:
        """Do all rows that are not done on the sets that are there, and write the page and ``metrics.json``."""
        published = read_published(Path(self.published) if self.published else OURS)
        there = [key for key in self._sets if not is_missing(self._data(session, key))]
        missing = [known.name(key) for key, known in self._sets.items() if key not in there]
        for name in missing:
            print(f"missing: {name} is not in paths.datasets; docs/papers/builders.md says how to build it", flush=True)
        if not there:
            raise ValueError(f"`paths.datasets` must hold one of the data sets {list(self.sets)} or more, found none")
        measured = [self._measure(session, key) for key in there]
        write_json(
            session.run_dir / "metrics.json",
            {"datasets": {each.name: asdict(each) for each in measured}, "missing": missing},
        )
        page = render_benchmark(
            measured, missing, published, command=session.command, measures=self.measures, notes=self.notes
        )
        write_text(Path(self.page), page)
        print(f"wrote {self.page}", flush=True)
        return session.run_dir

    def _measure(self, session: JobSession, name: str) -> MeasuredSet:
        known = self._sets[name]
        rows = [self._measure_row(session, name, key) for key in self._rows if key not in known.skip]
        dataset = self._prepare(session, name, next(iter(self._rows.values())).retriever)[0].dataset
        return MeasuredSet(
            name=known.name(name),
            of=known.of or known.name(name),
            skipped=[self._rows[key].title for key in self._rows if key in known.skip],
            passages=dataset.graph.num_nodes,
            edges=len(dataset.graph.indices) // 2,
            questions=len(dataset.split(self.split).queries),
            asked=len(judged_queries(dataset, self.split, self.num_queries)),
            published_passages=known.passages,
            published_questions=known.questions,
            rows=rows,
        )

    def _measure_row(self, session: JobSession, name: str, key: str) -> MeasuredRow:
        row, known = self._rows[key], self._sets[name]
        prepared, build = self._prepare(session, name, row.retriever)
        group = session.group("pipeline", row.pipeline)
        if row.checkpoint is not None:
            set_checkpoint(group, row.checkpoint)
        checkpoint = next((str(holder["checkpoint"]) for holder in holders(group, "checkpoint")), None)
        loaded = None if checkpoint is None else load_primary(checkpoint)
        decisive = [
            [str(group), row.retriever, list(self.measures), self.split, self.num_queries],
            [prepared.dataset.fingerprint, prepared.encoder_fingerprint],
            None if loaded is None else hash_files([loaded.path]),
        ]

        def run() -> dict[str, Any]:
            print(f"{name}: {row.title}", flush=True)
            return self._run(prepared, build(group), row.title)

        result = do_step(step_file(session.run_dir, f"{name} {key}", decisive), run)
        names, manifest = (
            {known.name(name), known.of or name, *known.train},
            None if loaded is None else loaded.reranker,
        )
        models = [holder["language_model"] for holder in holders(group, "language_model")]
        return MeasuredRow(
            title=row.title,
            embedder=str(prepared.encoder_name),
            language_model=", ".join(str(model.get("model")) for model in models if model) or "none",
            trained_on=[] if manifest is None else training_sets(manifest),
            saw_train=manifest is not None and has_seen(manifest, names, prepared.dataset.fingerprint),
            published=row.published,
            measures=result["measures"],
        )

    def _data(self, session: JobSession, name: str) -> Group:
        return session.data(self._sets[name].data or name)

    def _prepare(self, session: JobSession, name: str, retriever: str) -> tuple[PreparedDataset, PipelineFactory]:
        key = name, retriever
        if key not in self._prepared:
            self._prepared[key] = session.prepare_for_pipelines(
                self._data(session, name), retriever=session.group("retriever", retriever)
            )
        return self._prepared[key]

    def _run(self, prepared: PreparedDataset, pipeline: Any, title: str) -> dict[str, Any]:
        begin = time.perf_counter()
        dataset = prepared.dataset
        queries = judged_queries(dataset, self.split, self.num_queries)
        (ranked,) = run_pipelines(prepared, queries, {title: pipeline}, progress=True)
        scores = measure_ranking(dataset, dataset.split(self.split), queries, ranked.ranking, self.measures)
        means = {measure: float(values.nanmean()) for measure, values in scores.items()}
        return {"measures": means, "seconds": time.perf_counter() - begin}


def _records(kind: type[Record], entries: Mapping[str, Mapping[str, Any]], key: str) -> dict[str, Record]:
    """Build a record of each entry; a ValueError names the first that does not fit."""
    if not entries:
        raise ValueError(f"`{key}` must hold at least one entry, got none")
    records = {}
    for name, entry in entries.items():
        try:
            records[name] = TypeAdapter(kind).validate_python(dict(entry), extra="forbid")
        except ValidationError as error:
            first = error.errors()[0]
            setting = ".".join(map(str, first["loc"]))
            raise ValueError(f"`{key}.{name}.{setting}`: {first['msg'].lower()}, got {first['input']!r}") from None
    return records


def is_missing(data: Group) -> bool:
    """Return whether the folder of a data set is not there; those of registry packages always are."""
    folder = Path(data["datasets"]) / data["source"] if "source" in data else data.get("path")
    return folder is not None and not Path(folder).is_dir()


def holders(group: Any, key: str) -> Iterator[Any]:
    """Find all settings of a pipeline, at any depth, that have a key."""
    if isinstance(group, Mapping):
        if key in group:
            yield group
        group = list(group.values())
    if isinstance(group, Sequence) and not isinstance(group, str):
        for entry in group:
            yield from holders(entry, key)


def set_checkpoint(group: Group, checkpoint: str) -> None:
    """Let a pipeline rerank with a checkpoint; a ValueError if it has no reranker."""
    found = list(holders(group, "checkpoint"))
    if not found:
        raise ValueError("`job.rows` must give a checkpoint to a pipeline that reranks with one, such as grapher")
    for holder in found:
        holder["checkpoint"] = checkpoint
