"""Run ``graphrerank evaluate experiment=benchmark``: compare systems with published numbers on available data sets."""

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
from graphrerank_papers.experiments import Experiment, TableRow, do_step, step_file, write_tables

#: File of the published numbers that ship with this project.
PUBLISHED = Path(__file__).with_name("published.json")
#: Measure of the published numbers.
COMPARED_MEASURE = "R@5"


@dataclass(frozen=True, kw_only=True)
class BenchmarkSet:
    """Data set of the benchmark, with the size of the corpus on which published numbers are measured.

    Attributes:
        passages: Number of passages of the corpus that others publish on.
        questions: Number of questions that others publish on.
        train: Names of further data sets that contain train splits of this one.
        data: Name in ``conf/data`` or path of a folder. If None, the key of the data set is used.
        of: Key of the data set that this one is a subset of. Its published numbers are shown for both. None otherwise.
        skip: Keys of the systems that are not run on this data set.
    """

    passages: int
    questions: int
    train: tuple[str, ...] = ()
    data: str | None = None
    of: str | None = None
    skip: tuple[str, ...] = ()

    def published_as(self, key: str) -> str:
        """Return the name under which published numbers are listed.

        Args:
            key: Key of the data set.
        """
        return self.of or (key if self.data is None or "/" in self.data else self.data)


@dataclass(frozen=True, kw_only=True)
class BenchmarkRow:
    """System to run.

    Attributes:
        title: Name in the table.
        pipeline: Name in ``conf/pipeline``.
        retriever: Name in ``conf/retriever`` of the retriever for search steps that do not name one.
        checkpoint: Checkpoint of the pipeline's reranker. If None, the pipeline's default is used.
    """

    title: str
    pipeline: str
    retriever: str = "dense"
    checkpoint: str | None = None


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """Published numbers of a method.

    Attributes:
        method: Name of the method.
        source: Publication of the numbers, with the corpus if the publication states it.
        embedder: Name of the text encoder.
        language_model: Name of the language model.
        recall: :data:`COMPARED_MEASURE` in percent, by data set.
    """

    method: str
    source: str
    embedder: str
    language_model: str
    recall: Annotated[Mapping[str, Annotated[float, Field(ge=0, le=100)]], Field(alias=COMPARED_MEASURE)]

    def shown(self, dataset: str) -> TableRow:
        """Return the row of this method in the table of a data set.

        Args:
            dataset: Name of the data set.
        """
        texts = {"method": self.method, "source": self.source, "embedder": self.embedder}
        return {**texts, "language model": self.language_model, COMPARED_MEASURE: self.recall[dataset] / 100}


@dataclass(frozen=True, kw_only=True)
class Benchmark(Experiment):
    """Benchmark experiment with the settings of ``conf/experiment/benchmark.yaml``.

    Attributes:
        sets: Data sets by key. Settings are converted to :class:`BenchmarkSet`.
        rows: Systems by key. Settings are converted to :class:`BenchmarkRow`.
        measures: Names of the measures. Must contain :data:`COMPARED_MEASURE`.
        split: Split of the questions.
        num_queries: Maximum number of questions per data set. If None, all are used.
        published: JSON file of published numbers. If None, :data:`PUBLISHED` is used.
        encoder: Settings of the text encoder.
    """

    sets: Mapping[str, Any]
    rows: Mapping[str, Any]
    measures: Sequence[str]
    split: str
    num_queries: int | None = None
    published: str | None = None
    encoder: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "sets", _records(dict[str, BenchmarkSet], self.sets, "job.sets"))
        object.__setattr__(self, "rows", _records(dict[str, BenchmarkRow], self.rows, "job.rows"))
        check_counts(num_queries=self.num_queries)
        for name, entry in self.sets.items():
            if unknown := set(entry.skip) - set(self.rows):
                raise UserError(f"`job.sets.{name}.skip` must be among `job.rows` {list(self.rows)}, got {unknown}")
        if COMPARED_MEASURE not in parse_measures(self.measures):
            raise UserError(
                f"`job.measures` must contain {COMPARED_MEASURE} to compare with published numbers, "
                f"got {list(self.measures)}"
            )

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Measure the systems on the available data sets, except those measured in an earlier run.

        ``metrics.json`` and ``report.md`` are written to the run folder after each data set.

        Args:
            parts: Factory of the components.
            run_dir: Run folder.

        Returns:
            Run folder.

        Raises:
            UserError: If no data set is available.
        """
        published = read_published(Path(self.published) if self.published else PUBLISHED)
        available = {key: entry for key, entry in self.sets.items() if not self._is_missing(parts, key)}
        for key in sorted(set(self.sets) - set(available)):
            print(f"{key} is not in `paths.datasets`. See docs/papers/builders.md to build it.", flush=True)
        if not available:
            raise UserError(f"`paths.datasets` must contain at least one of {list(self.sets)}, got none of them")
        tables: dict[str, list[TableRow]] = {"data sets": []}
        for key, entry in available.items():
            select_queries = partial(judged_queries, split=self.split, limit=self.num_queries)
            prepare = cache(
                partial(
                    parts.prepare,
                    entry.data or key,
                    encoder=self.encoder,
                    splits=(self.split,),
                    select_queries=select_queries,
                )
            )
            rows = [row for name, row in self.rows.items() if name not in entry.skip]
            tables[key] = [self._measure(parts, run_dir, key, prepare(retriever=row.retriever), row) for row in rows]
            dataset = prepare(retriever=rows[0].retriever).dataset
            size = dataset.graph.num_nodes, len(judged_queries(dataset, self.split, self.num_queries))
            published_on = entry.passages, entry.questions
            columns = ("passages", "questions", "published on passages", "published on questions")
            sizes = dict(zip(columns, size + published_on, strict=True))
            comparable = "yes" if size == published_on else "no"
            tables["data sets"].append({"data set": key, **sizes, "comparable": comparable})
            name = entry.published_as(key)
            tables[f"{key}: published"] = [row.shown(name) for row in published if name in row.recall]
            report = write_tables(run_dir, "Benchmark", tables)
        print(report)
        return run_dir

    def _is_missing(self, parts: ComponentFactory, key: str) -> bool:
        """Return whether the folder of a data set is missing. Data sets from registry packages have no folder."""
        data = self.sets[key].data or key
        settings = {"path": data} if "/" in data else parts.settings("data", data)
        folder = Path(settings["datasets"]) / settings["source"] if "source" in settings else settings.get("path")
        return folder is not None and not Path(folder).is_dir()

    def _measure(
        self, parts: ComponentFactory, run_dir: Path, key: str, prepared: PreparedDataset, row: BenchmarkRow
    ) -> TableRow:
        """Measure a system on a data set, or read its earlier result."""
        dataset, known = prepared.dataset, self.sets[key]
        settings = parts.settings("pipeline", row.pipeline)
        holders = list(settings_with(settings, "checkpoint"))
        if row.checkpoint is not None:
            if not holders:
                raise UserError(
                    f"`checkpoint` of {row.title!r} in `job.rows` needs a pipeline with a reranker, such as grapher, "
                    f"got {row.pipeline!r}"
                )
            for holder in holders:
                holder["checkpoint"] = row.checkpoint
        loaded = load_primary(str(holders[0]["checkpoint"])) if holders else None
        decisive = [
            [str(settings), row.retriever, list(self.measures), self.split, self.num_queries],
            [dataset.fingerprint, prepared.encoder_fingerprint],
            None if loaded is None else hash_files([loaded.path]),
        ]

        def run() -> TableRow:
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
    """Read published numbers.

    Args:
        path: JSON list of objects with ``method``, ``source``, ``embedder``, ``language_model``, and ``R@5`` by data
            set.

    Returns:
        One record per method.

    Raises:
        UserError: If an entry has another form.
    """
    rows: list[PublishedRow] = _records(list[PublishedRow], path.read_bytes(), str(path))
    return rows


def training_sets(manifest: RerankerManifest) -> list[str]:
    """Return the distinct names of the data sets that a checkpoint was trained on.

    A data set has its name in ``conf/data``, or the name of its folder. An entry of ``mix`` without a data set has its
    key as name.

    Args:
        manifest: Manifest of the checkpoint.
    """
    named = []
    for given in (entry.arguments for entry in manifest.trained_on.values()):
        by_path = str(given["data"]) in ("None", "folder", "corpus_folder")
        named.append(PurePath(str((given.get("path") or given.get("name")) if by_path else given["data"])).name)
    return list(dict.fromkeys(named))


def has_seen(manifest: RerankerManifest, names: set[str], fingerprint: str) -> bool:
    """Return whether a checkpoint was trained on a data set.

    Args:
        manifest: Manifest of the checkpoint.
        names: Names of the data set and of its train splits.
        fingerprint: Fingerprint of the data set.
    """
    fingerprints = {entry.fingerprint for entry in manifest.trained_on.values()}
    return bool(names & set(training_sets(manifest))) or fingerprint in fingerprints


def settings_with(settings: Any, key: str) -> Iterator[Any]:
    """Yield all mappings with a given key within the settings of a pipeline, at any depth.

    Args:
        settings: Settings of a pipeline.
        key: Key to search.
    """
    if isinstance(settings, Mapping):
        if key in settings:
            yield settings
        settings = list(settings.values())
    if isinstance(settings, Sequence) and not isinstance(settings, str):
        for entry in settings:
            yield from settings_with(entry, key)


def _records(kind: Any, entries: Any, name: str) -> Any:
    """Build records from settings or JSON. Raise a UserError that names the first invalid entry."""
    adapter = TypeAdapter(kind)
    validate = adapter.validate_json if isinstance(entries, bytes) else adapter.validate_python
    try:
        return validate(entries, extra="forbid")
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join([name, *map(str, first["loc"])])
        raise UserError(f"`{location}`: {first['msg'].lower()}, got {first['input']!r}"[:300]) from None
