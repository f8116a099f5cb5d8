"""``python evaluate.py experiment=benchmark``: every data set that the folder has, with published numbers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.measuring import judged_queries, measure_ranking, parse_measures
from graphrerank.evaluation.runners.pipeline import run_pipelines
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.checks import UserError, check_counts
from graphrerank.utils.files import hash_files
from graphrerank_papers.experiments import do_step, step_file, write_tables

PUBLISHED = Path(__file__).with_name("published.json")  # of this project
COMPARED = "R@5"  # the measure that is published

Row = dict[str, Any]  # of a table


@dataclass(frozen=True, kw_only=True)
class BenchmarkSet:
    """A data set, and what published numbers are measured on."""

    passages: int  # of the corpus that others publish on
    questions: int  # that others publish on
    train: tuple[str, ...] = ()  # further data sets that are train splits of this one
    data: str | None = None  # a file of conf/data, or a folder's path; None: the set's name
    of: str | None = None  # the set that this is a part of, whose published numbers it is shown with
    skip: tuple[str, ...] = ()  # keys of rows that are not run

    def published_as(self, key: str) -> str:
        """Return the name under which others' numbers are listed."""
        return self.of or (key if self.data is None or "/" in self.data else self.data)


@dataclass(frozen=True, kw_only=True)
class BenchmarkRow:
    """A system that is run."""

    title: str  # its name in the table
    pipeline: str  # a file of conf/pipeline
    retriever: str = "dense"  # a file of conf/retriever: of searches that name none
    checkpoint: str | None = None  # of the pipeline's reranker; None: the pipeline's default, if it has one


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """Published numbers of a method."""

    method: str
    source: str  # who says so, and on which corpus where they say that
    embedder: str
    language_model: str
    # in percent, by data set
    recall: Annotated[Mapping[str, Annotated[float, Field(ge=0, le=100)]], Field(alias=COMPARED)]

    def shown(self, dataset: str) -> Row:
        """Return the row of a data set's table."""
        texts = {"method": self.method, "source": self.source, "embedder": self.embedder}
        return {**texts, "language model": self.language_model, COMPARED: self.recall[dataset] / 100}


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """The experiment; ``conf/experiment/benchmark.yaml`` describes its settings."""

    sets: Mapping[str, Any]  # of `BenchmarkSet`, as settings are given
    rows: Mapping[str, Any]  # of `BenchmarkRow`
    measures: Sequence[str]
    split: str
    num_queries: int | None = None
    published: str | None = None
    encoder: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sets", _records(dict[str, BenchmarkSet], self.sets, "job.sets"))
        object.__setattr__(self, "rows", _records(dict[str, BenchmarkRow], self.rows, "job.rows"))
        check_counts(num_queries=self.num_queries)
        for name, known in self.sets.items():
            if unknown := set(known.skip) - set(self.rows):
                raise UserError(f"`job.sets.{name}.skip` must be of `job.rows` {list(self.rows)}, got {unknown}")
        if COMPARED not in parse_measures(self.measures):
            raise UserError(f"`job.measures` must hold {COMPARED}, which is published, got {list(self.measures)}")

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Measure what is not measured yet on the sets that are there; write ``metrics.json`` and ``report.md``."""
        published = read_published(Path(self.published) if self.published else PUBLISHED)
        there = {key: known for key, known in self.sets.items() if not self._is_missing(parts, key)}
        for key in sorted(set(self.sets) - set(there)):
            print(f"missing: {key} is not in paths.datasets; docs/papers/builders.md says how to build it", flush=True)
        if not there:
            raise UserError(f"`paths.datasets` must hold one of the data sets {list(self.sets)} or more, found none")
        tables: dict[str, list[Row]] = {"data sets": []}
        for key, known in there.items():
            prepare = cache(partial(parts.prepare, known.data or key, encoder=self.encoder, splits=(self.split,)))
            rows = [row for name, row in self.rows.items() if name not in known.skip]
            tables[key] = [self._measure(parts, run_dir, key, prepare(retriever=row.retriever), row) for row in rows]
            dataset = prepare(retriever=rows[0].retriever).dataset
            size = dataset.graph.num_nodes, len(judged_queries(dataset, self.split, self.num_queries))
            published_on = known.passages, known.questions
            columns = ("passages", "questions", "published on passages", "published on questions")
            sizes = dict(zip(columns, size + published_on, strict=True))
            comparable = "yes" if size == published_on else "no"
            tables["data sets"].append({"data set": key, **sizes, "comparable": comparable})
            name = known.published_as(key)
            tables[f"{key}: published"] = [row.shown(name) for row in published if name in row.recall]
            report = write_tables(run_dir, "Benchmark", tables)
        print(report)
        return run_dir

    def _is_missing(self, parts: ComponentFactory, key: str) -> bool:
        """Return whether the folder of a data set is not there; those of registry packages always are."""
        data = self.sets[key].data or key
        settings = {"path": data} if "/" in data else parts.settings("data", data)
        folder = Path(settings["datasets"]) / settings["source"] if "source" in settings else settings.get("path")
        return folder is not None and not Path(folder).is_dir()

    def _measure(
        self, parts: ComponentFactory, run_dir: Path, key: str, prepared: PreparedDataset, row: BenchmarkRow
    ) -> Row:
        """Measure a system on a data set, or read what was measured before."""
        dataset, known = prepared.dataset, self.sets[key]
        settings = parts.settings("pipeline", row.pipeline)
        holders = list(settings_with(settings, "checkpoint"))
        if row.checkpoint is not None:
            if not holders:
                raise UserError("`job.rows` must give a checkpoint to a pipeline that reranks with one, as grapher")
            for holder in holders:
                holder["checkpoint"] = row.checkpoint
        loaded = load_primary(str(holders[0]["checkpoint"])) if holders else None
        decisive = [
            [str(settings), row.retriever, list(self.measures), self.split, self.num_queries],
            [dataset.fingerprint, prepared.encoder_fingerprint],
            None if loaded is None else hash_files([loaded.path]),
        ]

        def run() -> Row:
            print(f"{key}: {row.title}", flush=True)
            build = parts.pipeline_factory(prepared, retriever=row.retriever, encoder=self.encoder)
            queries = judged_queries(dataset, self.split, self.num_queries)
            (ranked,) = run_pipelines(prepared, queries, {row.title: build(settings)})
            scores = measure_ranking(dataset, dataset.split(self.split), queries, ranked.ranking, self.measures)
            return {measure: float(values.nanmean()) for measure, values in scores.items()}

        means = do_step(step_file(run_dir, f"{key} {row.title}", decisive), run)
        manifest = None if loaded is None else loaded.reranker
        names = {key, known.published_as(key), *known.train}
        models = [holder["language_model"] for holder in settings_with(settings, "language_model")]
        return {
            "system": row.title,
            "embedder": str(prepared.encoder_name),
            "language model": ", ".join(str(model.get("model")) for model in models if model) or "none",
            "trained on": "nothing" if manifest is None else ", ".join(training_sets(manifest)),
            "saw its train split": "yes" if manifest and has_seen(manifest, names, dataset.fingerprint) else "no",
            **means,
        }


def read_published(path: Path) -> list[PublishedRow]:
    """Read a JSON list of objects: ``method``, ``source``, ``embedder``, ``language_model``; ``R@5`` by data set."""
    rows: list[PublishedRow] = _records(list[PublishedRow], path.read_bytes(), str(path))
    return rows


def training_sets(manifest: RerankerManifest) -> list[str]:
    """Name the data sets of a training, each once: the files of ``conf/data``, or the last part of a folder's path.

    An entry of ``mix`` that names no data set is called by its key, as in ``conf``.
    """
    named = []
    for given in (entry.arguments for entry in manifest.trained_on.values()):
        by_path = str(given["data"]) in ("None", "folder", "corpus_folder")
        named.append(PurePath(str((given.get("path") or given.get("name")) if by_path else given["data"])).name)
    return list(dict.fromkeys(named))


def has_seen(manifest: RerankerManifest, names: set[str], fingerprint: str) -> bool:
    """Return whether a checkpoint was trained on a data set, by the ``names`` of it and of its training splits."""
    fingerprints = {entry.fingerprint for entry in manifest.trained_on.values()}
    return bool(names & set(training_sets(manifest))) or fingerprint in fingerprints


def settings_with(settings: Any, key: str) -> Iterator[Any]:
    """Find all settings of a pipeline, at any depth, that have a key."""
    if isinstance(settings, Mapping):
        if key in settings:
            yield settings
        settings = list(settings.values())
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        for entry in settings:
            yield from settings_with(entry, key)


def _records(kind: Any, entries: Any, name: str) -> Any:
    """Build records of a kind from settings or a file's JSON; a ValueError names the first entry that is wrong."""
    adapter = TypeAdapter(kind)
    validate = adapter.validate_json if isinstance(entries, bytes) else adapter.validate_python
    try:
        return validate(entries, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join([name, *map(str, first["loc"])])
        raise UserError(f"`{location}`: {first['msg'].lower()}, got {first['input']!r}"[:300]) from None
