"""The systems of a run of ``evaluate.py``, by short names: pipelines, run files, checkpoints; and their candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.prompts import prompts_of
from graphrerank.cli.session import Session
from graphrerank.evaluation.counterfactual import EDGES
from graphrerank.evaluation.run_json import RETRIEVER
from graphrerank.evaluation.study_plan import MIXED_MEASURES, PIPELINE_MEASURES, RERANKER_MEASURES, TESTED, StudyPlan
from graphrerank.models.checkpoint import Checkpoint, load_checkpoints
from graphrerank.models.manifest import RerankerManifest

RUN_ENDINGS = (".trec", ".run", ".txt", ".tsv", ".jsonl", ".gz")
DATASET = "{dataset}"  # in a run file's path: the name of the data set
FROZEN = (RETRIEVER, "ppr", "gcs", "cross_encoder", "granker")  # rows without training, beside those of checkpoints


@dataclass(frozen=True)
class Named:
    """A system as the command named it."""

    label: str  # its name in reports
    kind: str  # `pipeline`, `run` or `checkpoint`
    source: str  # what the command says


@dataclass(frozen=True)
class Lineup:
    """All systems of a run, the source of their candidates, and the measures and data sets."""

    named: Sequence[Named]  # the systems in the order of the tables' rows; the last is the primary one
    # the models behind each checkpoint, by its label and by name of the row
    checkpoints: Mapping[str, Mapping[str, Checkpoint]]
    pipelines: Mapping[str, DictConfig]  # `conf/pipeline` of each pipeline, by label
    data: Sequence[DictConfig]  # the data sets, in order
    encoder: DictConfig | None  # encodes texts; None where nothing is encoded
    # gives the candidates that checkpoints rerank, and what vector searches ask that name no retriever
    retriever: DictConfig
    # say which retriever and encoder these are, and whose, with a checkpoint; and which prompts a model is told
    notes: Sequence[str]
    plan: StudyPlan  # what is measured and tested
    prompts: Sequence[str] = ()  # name and fingerprint of each prompt that a language model is told
    answers: Any = None  # answers the queries from what each system ranks; None: nothing is answered


def read_lineup(session: Session) -> Lineup:
    """Name all systems, load the checkpoints, and choose data sets and the source of candidates.

    An entry of ``systems`` and ``checkpoint`` is a file of ``conf/pipeline``, else a run file, else a checkpoint.
    Encoder and retriever are the chosen ones, else those of the first checkpoint, else MiniLM and dense search. A data
    set has the settings of the first checkpoint that was trained on it, else those of ``conf``.
    """
    cfg, names = session.cfg, session.dataset_names()
    has_checkpoint = not OmegaConf.is_missing(cfg, "checkpoint")
    listed = bool(cfg.systems) or (has_checkpoint and OmegaConf.is_list(cfg.checkpoint))
    chosen = [] if not has_checkpoint else [cfg.checkpoint] if not OmegaConf.is_list(cfg.checkpoint) else cfg.checkpoint
    sources = [str(source) for source in (*cfg.systems, *chosen)]
    main = None if cfg.pipeline is None else session.choice("pipeline")
    pipeline_names = [*(name for name in cfg.pipelines if name != main), *([] if main is None else [main])]
    if pipeline_names and sources:
        raise ValueError(
            f"`checkpoint` and `systems` must not be given with a pipeline, got {sources}: `systems` names pipelines "
            "too; leave `pipeline` and `pipelines` out"
        )
    named = [Named(name, "pipeline", name) for name in pipeline_names] or name_systems(sources)
    _check_run_files(named, names)
    _check_settings(cfg, [entry.source for entry in named if entry.kind == "pipeline" and entry.source != main])
    _check_counterfactuals(cfg, [entry.label for entry in named if entry.kind == "pipeline"])
    loaded = {entry.label: _load(entry, listed=listed) for entry in named if entry.kind == "checkpoint"}
    for entry in named:
        if entry.kind == "checkpoint":
            session.tracking.reads_checkpoint(entry.source)
    manifests = {label: list(models.values())[-1].reranker for label, models in loaded.items()}
    pipelines = {entry.label: session.pipeline(entry.source) for entry in named if entry.kind == "pipeline"}
    retriever, retriever_name = session.choose("retriever", manifests, "dense")
    encoder, encoder_name = session.choose("encoder", manifests, "minilm" if pipelines else None)
    origin = f"candidates: {retriever_name}" + (f", vectors: {encoder_name}" if encoder else "")
    if cfg.pair_encoder is not None and any(manifest.reads_cross_encoder for manifest in manifests.values()):
        origin += (
            f", {session.choice('pair_encoder')} on the first {cfg.cross_encoder_top_k}, whose time is in no stage"
        )
    data = [session.data(name, list(manifests.values())) for name in names]
    prompts = prompts_of(*pipelines.values(), cfg.answers, *data)
    answers: Any = None if cfg.answers is None else session.build(cfg.answers)
    usual = PIPELINE_MEASURES if pipeline_names else MIXED_MEASURES if listed else RERANKER_MEASURES
    return Lineup(
        named=named,
        checkpoints=loaded,
        pipelines=pipelines,
        data=data,
        encoder=encoder,
        retriever=retriever,
        notes=[*([origin] if loaded else []), *([f"prompts: {', '.join(prompts)}"] if prompts else [])],
        plan=StudyPlan(
            _with_answers(cfg.measures or usual, answers),
            cfg.tested or _tested(cfg.measures or usual, answers),
            ties=cfg.ties,
            resamples=cfg.resamples,
            seed=session.seed,
            stage=answers.measures if answers else (),
        ),
        prompts=prompts,
        answers=answers,
    )


def _tested(measures: Sequence[str], answers: Any) -> list[str]:
    """Name what is tested by default where a stage names measures to test; empty: as :class:`StudyPlan` chooses."""
    own = list(getattr(answers, "tested", ()))
    return [*(name for name in TESTED if name in measures), *own] if own else []


def _with_answers(measures: Sequence[str], answers: Any) -> list[str]:
    """Add the measures of answers to those of rankings, where answers are written."""
    return [*measures, *(name for name in (answers.measures if answers else ()) if name not in measures)]


def name_systems(sources: Sequence[str]) -> list[Named]:
    """Return the kind of each source, with a short name; a ValueError if there is none or two have one path."""
    if not sources or len(set(sources)) != len(sources):
        raise ValueError(
            f"`systems` and `checkpoint` must name one system or more, and none twice, got {list(sources)}"
        )
    pipelines = GlobalHydra.instance().config_loader().get_group_options("pipeline", config_name="evaluate")
    kinds = [_kind(source, pipelines) for source in sources]
    return [Named(*entry) for entry in zip(short_names(sources), kinds, sources, strict=True)]


def short_names(sources: Sequence[str]) -> list[str]:
    """Name paths by as many of their last parts as make them unique, without the suffixes of run files and checkpoints.

    A name that a frozen row has (:data:`FROZEN`) gets one part more; a ValueError if names cannot be told apart.
    """
    parts = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, parts)) + 1):
        names = [_joined(path, count) for path in parts]
        names = [_joined(path, count + 1) if name in FROZEN else name for path, name in zip(parts, names, strict=True)]
        if taken := sorted(set(names) & set(FROZEN)):
            raise ValueError(
                f"`systems` and `checkpoint` must not take a frozen row's name {FROZEN}, got {taken}; write the path "
                "with its parent folder, or rename it"
            )
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"`systems` must have different names, got {list(sources)}")


def _joined(parts: Sequence[str], count: int) -> str:
    return "-".join(_bare(part) for part in parts[-count:] if part != "/")


def _bare(part: str) -> str:
    for ending in (*RUN_ENDINGS[::-1], ".ckpt"):
        part = part.removesuffix(ending)
    return part.strip(".-_") or part


def _kind(source: str, pipelines: Sequence[str]) -> str:
    if source in pipelines:
        return "pipeline"
    path = Path(source)
    if source.endswith(RUN_ENDINGS) or DATASET in source or (path.is_file() and path.suffix != ".ckpt"):
        return "run"
    return "checkpoint"


def _load(named: Named, *, listed: bool) -> dict[str, Checkpoint]:
    """Load the models behind a checkpoint, by name of the row: its label where several systems are listed."""
    loaded = load_checkpoints(named.source)
    for system, checkpoint in loaded.items():
        if not isinstance(checkpoint.manifest, RerankerManifest):
            raise ValueError(
                f"{named.source}: {checkpoint.manifest.model.name} is no reranker; pipeline=ea_graphrag "
                "pipeline.steps.0.adapter.checkpoint=RUN routes by it, experiment=ea_benchmark judges it"
            )
        if not listed and system in FROZEN:
            raise ValueError(
                f"{named.source}: holds a system of the name {system!r}, which a frozen row has; 'checkpoint=[RUN]' "
                "names it by its folder"
            )
    if not listed:
        return loaded
    return {named.label if len(loaded) == 1 else f"{named.label}-{system}": loaded[system] for system in loaded}


def _check_run_files(named: Sequence[Named], datasets: Sequence[str]) -> None:
    """Refuse the run file of one data set where several are evaluated."""
    for system in named:
        if system.kind == "run" and DATASET not in system.source and len(datasets) > 1:
            raise ValueError(
                f"`systems`: the run file {system.source} is of one data set, `datasets` names {len(datasets)}; write "
                f"its path with {DATASET} in the place of the name"
            )


def _check_settings(cfg: DictConfig, pipelines: Sequence[str]) -> None:
    """Refuse settings of a pipeline that is none of those named; those of ``pipeline=`` are set below ``pipeline``."""
    if strangers := set(cfg.settings) - set(pipelines):
        raise ValueError(
            f"`settings` must be of pipelines in `systems` or `pipelines`, {sorted(pipelines)}, got {sorted(strangers)}"
        )
    if plain := [name for name, own in cfg.settings.items() if not OmegaConf.is_dict(own)]:
        raise ValueError(
            f"`settings.{plain[0]}` must be written as settings.{plain[0]}.KEY=..., got {cfg.settings[plain[0]]!r}"
        )


def _check_counterfactuals(cfg: DictConfig, pipelines: Sequence[str]) -> None:
    if strangers := set(cfg.counterfactuals) - set(EDGES):
        raise ValueError(f"`counterfactuals` must be of {EDGES}, got {sorted(strangers)}")
    if strangers := set(cfg.counterfactual_pipelines) - set(pipelines):
        raise ValueError(f"`counterfactual_pipelines` must be of `systems`, got {sorted(strangers)}")
