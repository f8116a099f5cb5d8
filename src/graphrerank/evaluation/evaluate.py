"""``evaluate`` any systems on any data sets, with components by their names or as built objects."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.core import Ranking
from graphrerank.corpus.metadata import Filter
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.data.run_retriever import read_run
from graphrerank.evaluation.dataset_result import measure_systems
from graphrerank.evaluation.measuring import (
    MIXED_MEASURES,
    RERANKER_MEASURES,
    TESTED,
    EvaluationPlan,
    judged_queries,
)
from graphrerank.evaluation.ranking import EDGES, FROZEN, Rerankers, rank_candidates, run_pipelines
from graphrerank.evaluation.records import DatasetResult
from graphrerank.evaluation.report import print_result
from graphrerank.evaluation.result import EvaluationResult
from graphrerank.evaluation.significance import LEVEL, across_datasets
from graphrerank.evaluation.systems import RankedDataset, RankedSystem, Stage, System
from graphrerank.models.checkpoint import Checkpoint, library_versions, load_checkpoints
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

RUN_DEPTH = 1_000  # nodes that are read of a run file, per query
TIMED_ALONE = 50  # queries that pipelines retrieve once more, one at a time
RUN_ENDINGS = (".trec", ".run", ".txt", ".tsv", ".jsonl", ".gz")
ENDINGS = r"(\.(trec|run|txt|tsv|jsonl))?(\.gz)?(\.ckpt)?$"
DATASET = "{dataset}"  # in a run file's path: the name of the data set
NONE = "none"  # the encoder that is none


@dataclass(frozen=True)
class Named:
    """A system by its name in reports."""

    label: str
    kind: str  # `pipeline`, `run` or `checkpoint`
    source: str  # for the report
    given: Any  # as the caller named it: a checkpoint, a pipeline, or the path of a run file


def evaluate(
    systems: Any,
    data: Any,
    *,
    split: str = "test",
    retriever: Any = None,
    encoder: Any = None,
    pair_encoder: Any = None,
    cross_encoder_top_k: int = 20,
    scorers: Sequence[str | System] = (),
    measures: Sequence[str] = (),
    tested: Sequence[str] = (),
    ties: str = "own",
    resamples: int = 10_000,
    counterfactuals: Sequence[str] = EDGES,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    stages: Sequence[Stage] = (),
    filter: Filter | None = None,
    num_queries: int | None = None,
    seed: int = 0,
    run_dir: str | Path | None = None,
    parts: ComponentFactory | None = None,
    show: bool = True,
    command: str = "graphrerank.evaluate",
    config: Mapping[str, Any] | None = None,
) -> EvaluationResult:
    """Evaluate systems on the same queries of each data set; the last one is compared with every other.

    Checkpoints rerank the same candidates, and the retriever, PPR and GCS get a row each. Retriever and encoder are the
    given ones, otherwise those that the first checkpoint was trained with, otherwise dense search and MiniLM. A data
    set by its name has the settings that the first checkpoint trained on it had.

    Args:
        systems: By label, or a list, or one: a checkpoint (a :class:`GraphReranker`, the name of a shipped one, the
            path of a run folder, a ``.ckpt`` or an artifact), a pipeline (a name of ``conf/pipeline``, settings, a
            factory, or a built one), or the path of a TREC run file, with ``{dataset}`` for the data set's name. Of
            one run folder that is given alone, each model has its own name.
        data: A data set as :meth:`ComponentFactory.dataset <graphrerank.config.components.ComponentFactory.dataset>`
            takes it, a prepared one, or a list.
        split: The split whose judgements count.
        retriever: Of the candidates, and of vector searches that name none.
        encoder: Of texts; ``"none"`` for none.
        pair_encoder: A cross-encoder, for pipelines and for checkpoints that read its scores or vectors.
        cross_encoder_top_k: Candidates that it reads for checkpoints that read its scores.
        scorers: Names of ``conf/scorer`` or systems: further rows next to PPR and GCS.
        measures: Names of measures; empty: as suits the systems.
        tested: Those of them that are tested; empty: nDCG@10, PR@10, CR@10, and what ``stages`` name.
        ties: ``own`` or ``trec`` (:func:`~graphrerank.evaluation.measuring.break_ties`).
        resamples: Sign flips of a randomisation test, and samples of a bootstrap.
        counterfactuals: Edges with which checkpoints rerank once more.
        settings: Changed settings of pipelines, by label.
        stages: Called with what the systems ranked (:class:`~graphrerank.evaluation.systems.Stage`).
        filter: On the metadata of passages (:mod:`~graphrerank.corpus.metadata`); the others are as if they did not
            exist: judgements of them and what run files rank of them are left out.
        num_queries: Queries, the first ones by id; None: all.
        seed: Of resampling and of shuffled edges.
        run_dir: Folder for the files of the evaluation; None: none are written.
        parts: Builds parts by their names; None: with the folders of ``conf/paths``.
        show: Whether to print the table of each data set.
        command: The command, for the report.
        config: The command's configuration, for comparisons of runs.

    Raises:
        ValueError: If a system is unknown, two have one name, or an argument does not fit.

    Example:
        >>> from graphrerank import Dataset, evaluate, fit
        >>> data = Dataset.from_folder("my_data")  # doctest: +SKIP
        >>> result = evaluate({"base": "base", "mine": fit(data)}, data)  # doctest: +SKIP
        >>> result.to_pandas()["nDCG@10"]  # doctest: +SKIP
    """
    parts = parts or ComponentFactory(seed=seed)
    alone = isinstance(systems, str | Path | GraphReranker)
    named = name_systems(systems, parts)
    datasets = list(data) if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    if not datasets:
        raise UserError("`data` must name at least one data set, got none")
    _check(named, len(datasets), settings or {}, counterfactuals)
    groups = {
        system.label: Rerankers(system.source, load_models(system, alone=alone))
        for system in named
        if system.kind == "checkpoint"
    }
    manifests = {label: group.manifest for label, group in groups.items()}
    if pair_encoder is not None:
        reading = [label for label, manifest in manifests.items() if manifest.reads_cross_encoder]
        groups |= {label: replace(groups[label], reads=cross_encoder_top_k) for label in reading}
    pipelines: dict[str, ConfiguredComponent | Pipeline] = {}
    for system in (one for one in named if one.kind == "pipeline"):
        try:
            changes = (settings or {}).get(system.label, {})
            is_built = isinstance(system.given, Pipeline)
            pipelines[system.label] = system.given if is_built else parts.component("pipeline", system.given, **changes)
        except ValueError as error:
            raise UserError(re.sub(r"^`(?=\w+[.[`])", f"`settings.{system.label}.", str(error))) from error
    searches, retriever_name = chosen_part(parts, "retriever", retriever, manifests, "dense")
    encodes, encoder_name = chosen_part(parts, "encoder", encoder, manifests, "minilm" if pipelines else None)
    scored = [name for stage in stages for name in stage.measures]
    measured = list(measures or (RERANKER_MEASURES if alone and groups else MIXED_MEASURES))
    measured += [name for name in scored if name not in measured]
    if not tested and (own := [name for stage in stages for name in stage.tested]):
        tested = [*(name for name in TESTED if name in measured), *own]
    plan = EvaluationPlan(measured, tested, ties=ties, resamples=resamples, seed=seed, stage=scored)
    sets = [given if isinstance(given, PreparedDataset) else data_part(parts, given, manifests) for given in datasets]
    notes = []
    if groups:
        notes.append(f"candidates: {retriever_name}" + (f", vectors: {encoder_name}" if encodes else ""))
        if pair_encoder is not None and reading:
            reader = parts.component("pair_encoder", pair_encoder).name
            notes[0] += f", {reader} on the first {cross_encoder_top_k}, whose time is in no stage"
    reads_vectors = bool(pipelines) and encodes is not None
    reads_vectors |= any(model.reranker.inputs.reads_vectors for g in groups.values() for model in g.models.values())

    further = [row if isinstance(row, System) else System(row, parts.build("scorer", row).score) for row in scorers]

    def prepare_as_trained(manifest: RerankerManifest, prepared: PreparedDataset, queries: Tensor) -> PreparedDataset:
        if pair_encoder is not None and manifest.reads_cross_encoder:
            prepared = parts.with_cross_encoder(prepared, pair_encoder, queries, top_k=cross_encoder_top_k)
        part = prepared.with_features(manifest.retriever.feature_names)
        if manifest.pair_encoder is None:
            return part
        reads = parts.from_manifest("pair_encoder", manifest.pair_encoder) if pair_encoder is None else pair_encoder
        return parts.with_pair_encoder(part, reads)

    def retrieve(prepared: PreparedDataset, queries: Tensor) -> dict[str, list[RankedSystem]]:
        if pair_encoder is not None:
            prepared = parts.with_pair_encoder(prepared, pair_encoder)
        factory = parts.pipeline_factory(prepared, retriever=searches, encoder=encodes)

        def build(label: str) -> Pipeline:
            given = pipelines[label]
            try:
                if isinstance(given, Pipeline):
                    return given.over(prepared.dataset.graph.to(parts.device)) if filter else given
                return factory(given)
            except ValueError as error:
                raise UserError(f"{label}: {error}") from error

        ranked = run_pipelines(prepared, queries, {label: build(label) for label in pipelines}, alone=TIMED_ALONE)
        return {row.name: [row] for row in ranked}

    def rank(given: PreparedDataset | ConfiguredComponent) -> RankedDataset:
        if filter:
            if isinstance(given, PreparedDataset):
                raise UserError("`filter` must be null for a prepared data set, whose candidates are ranked: filter it")
            given = ConfiguredComponent(instance=parts.build("data", given).where(filter))
        rows: dict[str, list[RankedSystem]] = {}
        candidates = None
        if groups or pipelines:
            chosen: dict[str, Any] = {"retriever": searches, "encoder": encodes, "reads_vectors": reads_vectors}
            prepared = parts.prepare(given, **chosen, splits=[split], keep_retriever=bool(groups))
            dataset, queries = prepared.dataset, judged_queries(prepared.dataset, split, num_queries)
            torch.set_num_threads(parts.num_threads)
            if groups:
                candidates = prepared.ranking.select(queries)
                rows |= rank_candidates(
                    prepared,
                    queries,
                    groups,
                    prepare=prepare_as_trained,
                    device=parts.device,
                    scorers=further,
                    counterfactuals=counterfactuals,
                    seed=seed,
                )
            if pipelines:
                rows |= retrieve(prepared, queries)
        else:
            dataset = given.dataset if isinstance(given, PreparedDataset) else parts.dataset(given)
            queries = judged_queries(dataset, split, num_queries)
        for system in named:
            if system.kind == "run":
                path = Path(str(system.given).replace(DATASET, dataset.name))
                ranking = read_run_file(path, dataset, split, queries, drop_unknown=bool(filter))
                row = RankedSystem(system.label, "run", system.source, ranking, fingerprint=hash_files([path]))
                rows[system.label] = [row]
        ordered = [row for label in ("", *(system.label for system in named)) for row in rows.get(label, [])]
        counts = ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in parts.encoder_counts.items())
        noted = [*notes, *([f"the encoder's endpoint, so far in this run: {counts}"] if counts else [])]
        return RankedDataset(dataset, split, queries, ordered, candidates, noted)

    results: dict[str, DatasetResult] = {}
    kept = {"ties": ties, "resamples": resamples, "level": LEVEL, "seed": seed}
    kept |= {"filter": json.dumps(filter)} if filter else {}
    folder = None if run_dir is None else Path(run_dir)
    for given in sets:
        ranked = rank(given)
        added = [stage(ranked, run_dir=folder, seed=seed) for stage in stages]
        found = results[ranked.dataset.name] = measure_systems(ranked, plan, added)
        result = EvaluationResult(
            command,
            dict(results),
            across_datasets(list(results.values()), permutations=resamples, seed=seed),
            kept,
            config or {},
            library_versions(),
            parts.encoder_counts,
        )
        if show:
            print_result(found, ties=ties)
        if folder is not None:
            result.save(folder)
    return result


def name_systems(systems: Any, parts: ComponentFactory | None = None) -> list[Named]:
    """Return the kind of each system, with a name."""
    parts = parts or ComponentFactory()
    if isinstance(systems, Mapping) and "_target_" not in systems:
        taken = sorted({str(label) for label in systems} & set(FROZEN))
        if taken or not systems:
            raise UserError(f"`systems` must have one name or more, and none of a frozen row {FROZEN}, got {taken}")
        return [_named(str(label), given, parts) for label, given in systems.items()]
    listed = list(systems) if isinstance(systems, Sequence) and not isinstance(systems, str) else [systems]
    sources = [str(given.source if isinstance(given, GraphReranker) else given) for given in listed]
    if not sources or len(set(sources)) != len(sources):
        raise UserError(f"`systems` must name one system or more, and none twice, got {sources}")
    return [_named(label, given, parts) for label, given in zip(short_names(sources), listed, strict=True)]


def _named(label: str, given: Any, parts: ComponentFactory) -> Named:
    if isinstance(given, GraphReranker | Checkpoint):
        return Named(label, "checkpoint", str(given.source if isinstance(given, GraphReranker) else given.path), given)
    if not isinstance(given, str | Path):
        return Named(label, "pipeline", label, given)
    source = str(given)
    if isinstance(given, str) and given in parts.choices("pipeline"):
        return Named(label, "pipeline", source, given)
    path = Path(source)
    is_run = source.endswith(RUN_ENDINGS) or DATASET in source or (path.is_file() and path.suffix != ".ckpt")
    return Named(label, "run" if is_run else "checkpoint", source, given)


def short_names(sources: Sequence[str]) -> list[str]:
    """Name paths by as many of their last parts as make them unique, and none of them that of a frozen row.

    Suffixes of run files and checkpoints are left out.
    """
    paths = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, paths)) + 1):
        listed = [[part for part in path[-count:] if part != "/"] for path in paths]
        names = ["-".join(re.sub(ENDINGS, "", part).strip(".-_") or part for part in parts) for parts in listed]
        if len({*names, *FROZEN}) == len(names) + len(FROZEN):
            return names
    raise UserError(
        f"`systems` must have different names, and none of a frozen row {FROZEN}, got {list(sources)}; write a path "
        "with its parent folder, or rename it"
    )


def load_models(named: Named, *, alone: bool) -> dict[str, Checkpoint]:
    """Load the models of a checkpoint, by name of the row: each its own where the checkpoint is evaluated alone."""
    given = named.given.checkpoint if isinstance(named.given, GraphReranker) else named.given
    loaded = {given.manifest.name: given} if isinstance(given, Checkpoint) else load_checkpoints(given)
    for system, checkpoint in loaded.items():
        if not isinstance(checkpoint.manifest, RerankerManifest):
            raise UserError(
                f"{named.source}: {checkpoint.manifest.model.name} is no reranker; pipeline=ea_graphrag "
                "pipeline.steps.0.adapter.checkpoint=RUN routes by it, experiment=ea_benchmark judges it"
            )
        if alone and system in FROZEN:
            raise UserError(
                f"{named.source}: holds a system of the name {system!r}, which a frozen row has; 'checkpoint=[RUN]' "
                "names it by its folder"
            )
    if alone:
        return loaded
    return {named.label if len(loaded) == 1 else f"{named.label}-{system}": loaded[system] for system in loaded}


def chosen_part(
    parts: ComponentFactory, group: str, given: Any, manifests: Mapping[str, RerankerManifest], usual: str | None
) -> tuple[ConfiguredComponent | None, str]:
    """Return the given part with its name for notes, else the first checkpoint's, else the usual one; None for none."""
    if given == NONE:
        return None, ""
    if given is not None:
        part = parts.component(group, given)
        return part, part.name
    for label, manifest in manifests.items():
        if (entry := getattr(manifest, group)) is not None:  # None where nothing was encoded
            return parts.from_manifest(group, entry), f"{entry.choice} of {label}"
    return (None, "") if usual is None else (parts.component(group, usual), usual)


def data_part(parts: ComponentFactory, given: Any, manifests: Mapping[str, RerankerManifest]) -> ConfiguredComponent:
    """Return a data set with the settings of the first checkpoint that was trained on it, else as it is given."""
    for manifest in manifests.values():
        if isinstance(given, str) and manifest.data.choice == given:
            return parts.from_manifest("data", manifest.data)
    part = parts.component("data", given)
    splits = None if part.settings is None else with_trained_splits(part.settings, list(manifests.values()))
    return replace(part, settings=splits)


def with_trained_splits(data: DictConfig, manifests: Sequence[RerankerManifest]) -> DictConfig:
    """Give a data set folder that names no splits those that the first model trained on it had, in a copy."""
    if data.get("path") is None or data.get("splits", {}) is not None:
        return data
    for trained in (manifest.data.arguments for manifest in manifests):
        path, splits = trained.get("path"), trained.get("splits")
        if splits and isinstance(path, str) and Path(path).resolve() == Path(str(data.path)).resolve():
            return cast(DictConfig, OmegaConf.merge(data, {"splits": splits}))
    return data


def _check(
    named: Sequence[Named], num_datasets: int, settings: Mapping[str, Any], counterfactuals: Sequence[str]
) -> None:
    """Refuse arguments that do not fit the systems."""
    pipelines = sorted(system.label for system in named if system.kind == "pipeline")
    for system in named:
        if system.kind == "run" and DATASET not in system.source and num_datasets > 1:
            raise UserError(
                f"`systems`: the run file {system.source} is of one data set, `datasets` names {num_datasets}; write "
                f"its path with {DATASET} in the place of the name"
            )
    if plain := [name for name, changes in settings.items() if not isinstance(changes, Mapping)]:
        raise UserError(
            f"`settings.{plain[0]}` must be written as settings.{plain[0]}.KEY=..., got {settings[plain[0]]!r}"
        )
    for argument, given, known, whose in (
        ("settings", settings, pipelines, f"pipelines in `systems`, {pipelines}"),
        ("counterfactuals", counterfactuals, EDGES, EDGES),
    ):
        if unknown := sorted(set(given) - set(known)):
            raise UserError(f"`{argument}` must be of {whose}, got {unknown}")


def read_run_file(path: Path, dataset: Dataset, split: str, queries: Tensor, *, drop_unknown: bool = False) -> Ranking:
    """Read the rankings of a TREC run file for some queries: ``[Q, depth]``; one that it does not name is padding."""
    query_ids, node_ids = dataset.query_ids, dataset.graph.node_ids
    run = read_run(path, query_ids=query_ids, node_ids=node_ids, top_k=RUN_DEPTH, drop_unknown=drop_unknown)
    ranking = Ranking(run.nodes[queries], run.scores[queries])
    if not bool((ranking.nodes >= 0).any()):
        raise UserError(
            f"{path}: needed a candidate for at least one of the {len(queries)} queries judged of split {split!r} of "
            f"{dataset.name!r}, found none"
        )
    return ranking
