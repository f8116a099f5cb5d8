"""``graphrerank serve``: configure the HTTP service from ``conf/serve.yaml`` and run it."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import get_object
from omegaconf import DictConfig

from graphrerank._moved import moved_names
from graphrerank.artifacts.artifact import Artifact
from graphrerank.cli.command import NONE, CommandContext
from graphrerank.cli.export import exported
from graphrerank.config.yaml_components import (
    as_yaml,
    build_cached_encoder,
    build_from_yaml,
    build_pipeline,
    read_dataset,
)
from graphrerank.core.loads_checkpoint import LoadsCheckpoint
from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.evaluation.plan import name_systems
from graphrerank.models.manifest import RerankerManifest
from graphrerank.rerank.hub import locate_model
from graphrerank.serving.limits import Limits
from graphrerank.serving.server import Service, run
from graphrerank.serving.settings import FeedbackSettings, PageSettings, PermissionSettings, ServiceSettings
from graphrerank.serving.setup.artifact_source import check_format, find_artifact, open_artifact, served_format
from graphrerank.serving.setup.corpus import MakePipeline, load_corpus
from graphrerank.serving.setup.once_per_process import OncePerProcess
from graphrerank.serving.setup.page_settings import page_settings
from graphrerank.serving.setup.service import (
    NEEDS_RERANKER,
    IndexedCorpus,
    RerankerLoading,
    ServedArtifacts,
    model_service,
    rerank_service,
)
from graphrerank.serving.standard_routes import SEARCH
from graphrerank.text.languages import AUTO, language_of
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)


def serve_http(cfg: DictConfig) -> Path:
    """Serve a checkpoint or an artifact over HTTP until a signal stops the service.

    The last line that is printed before the first request is the artifact's folder.

    Args:
        cfg: Settings of ``conf/serve.yaml``.

    Returns:
        The artifact's folder.

    Raises:
        UserError: If a setting is invalid, or incompatible with the artifact or the corpus.
    """
    if cfg.artifact is None and cfg.checkpoint is None:
        raise UserError("`checkpoint` or `artifact` must be set for mode=http, got null for both")
    if cfg.language != AUTO:
        language_of(cfg.language)
    settings, command = service_settings(cfg), CommandContext(cfg)
    folder = artifact_folder(cfg)
    format_name = served_format(folder, cfg.format, settings.device)
    artifact = open_artifact(folder, format_name, settings.device)
    if isinstance(artifact.manifest, RerankerManifest):
        service = service_of_reranker(command, artifact.folder, artifact.manifest, settings)
    else:
        check_other_model(cfg, artifact)
        service = model_service(artifact, format_name, settings, cfg.service)
    print_addresses(cfg, service)
    print(artifact.folder, flush=True)
    run(service)
    return artifact.folder


def service_of_reranker(
    command: CommandContext, folder: Path, manifest: RerankerManifest, settings: ServiceSettings
) -> Service:
    """Return the service of a reranker.

    Args:
        command: Running command.
        folder: Folder of the served artifact.
        manifest: Manifest of the served artifact.
        settings: Settings of the service.

    Returns:
        The service.
    """
    cfg = command.cfg
    loading = RerankerLoading(
        make_encoder=encoder_of_requests(command, manifest),
        make_pair_encoder=pair_encoder_of_requests(command, manifest),
        format_name=cfg.format,
        language=cfg.language,
    )
    rival, shadow = (None if cfg[name] is None else artifact_folder(cfg, name) for name in ("interleave", "shadow"))
    artifacts = ServedArtifacts(folder, rival, shadow)
    index = None if cfg.index is None else indexed_corpus(command, artifacts, settings)
    return rerank_service(artifacts, settings, loading=loading, index=index)


def check_other_model(cfg: DictConfig, artifact: Artifact) -> None:
    """Check that no setting that requires a reranker is set for another model.

    Args:
        cfg: Settings of ``conf/serve.yaml``.
        artifact: Artifact of a model that is not a reranker.

    Raises:
        UserError: If ``interleave``, ``shadow``, ``feedback`` or ``index`` is set.
    """
    if any((cfg.interleave, cfg.shadow, cfg.feedback.path)):
        raise UserError(
            f"`interleave`, `shadow` and `feedback` require a reranker, but {artifact.folder} contains another model"
        )
    if cfg.index is not None:
        name = artifact.manifest.model.name
        raise UserError(f"`index` requires a reranker, but {artifact.folder} contains a {name}")


def print_addresses(cfg: DictConfig, service: Service) -> None:
    """Print the addresses of a service.

    Args:
        cfg: Settings of ``conf/serve.yaml``.
        service: Service that is about to run.
    """
    address = f"http://{cfg.host}:{cfg.port}"
    first = SEARCH if cfg.index is not None else service.routes[0]
    print(f"POST {address}{first.paths[-1]}, described by {address}/openapi.json")
    if service.settings.page is not None:
        print(f"page: {address}/")


def artifact_folder(cfg: DictConfig, name: str = "artifact") -> Path:
    """Return the folder of the artifact in a setting.

    If ``checkpoint`` is set, it is exported to the folder ``artifact`` first
    (:func:`~graphrerank.cli.export.exported`).

    Args:
        cfg: Settings of ``conf/serve.yaml``.
        name: Name of the setting: ``artifact``, ``shadow`` or ``interleave``.

    Returns:
        The artifact's folder. A symbolic link is not resolved.

    Raises:
        UserError: If the artifact does not exist.
    """
    check_format(cfg.format)
    if name == "artifact" and cfg.checkpoint is not None:
        return exported(cfg)
    return find_artifact(
        str(cfg[name]),
        cache=Path(cfg.paths.cache),
        format_name=cfg.format,
        revision=cfg.revision if name == "artifact" else None,
        argument=name,
        report=partial(print, flush=True),
    )


def encoder_of_requests(
    command: CommandContext, manifest: RerankerManifest
) -> OncePerProcess[MemoryVectorCache] | None:
    """Return the factory of the text encoder for queries and documents in requests.

    Args:
        command: Running command.
        manifest: Manifest of the served artifact.

    Returns:
        Factory of the configured encoder. If no encoder is configured, the encoder of the training is used. None for
        models without vectors and for ``encoder=none``.
    """
    encoder, trained = command.cfg.encoder, manifest.encoder
    if encoder is None and trained is not None and command.choice("encoder") != NONE:
        encoder = command.parts.from_manifest("encoder", trained).settings
    return None if encoder is None else shared_encoder(as_yaml(encoder))


def pair_encoder_of_requests(command: CommandContext, manifest: RerankerManifest) -> OncePerProcess[Any] | None:
    """Return the factory of the cross-encoder of a GRanker head.

    Args:
        command: Running command.
        manifest: Manifest of the served artifact.

    Returns:
        Factory of the configured cross-encoder. If none is configured, the cross-encoder of the training is used. None
        for other models.
    """
    trained = manifest.pair_encoder
    if trained is None:
        return None
    settings: Any = command.cfg.pair_encoder or command.parts.from_manifest("pair_encoder", trained).settings
    return OncePerProcess(partial(build_from_yaml, as_yaml(settings)))


def indexed_corpus(command: CommandContext, artifacts: ServedArtifacts, settings: ServiceSettings) -> IndexedCorpus:
    """Return the corpus of the setting ``index``, whose pipeline reranks with the artifact.

    Args:
        command: Running command.
        artifacts: Artifacts of the service.
        settings: Settings of the service.

    Returns:
        Corpus, which the workers load.

    Raises:
        UserError: If the folder does not exist, or artifacts are compared although the last step of the pipeline does
            not rerank with a checkpoint.
    """
    cfg, parts, folder = command.cfg, command.parts, Path(command.cfg.index)
    if not folder.is_dir():
        raise UserError(f"`index` must be a data set folder or a corpus folder, got {cfg.index!r}")
    encoder = cfg.encoder
    if encoder is None and command.choice("encoder") != NONE:
        encoder = parts.settings("encoder", "minilm")
    pipeline = cfg.pipeline or parts.settings("pipeline", default_pipeline(has_encoder=encoder is not None))
    if artifacts.are_compared and not ends_with_checkpoint(pipeline):
        raise UserError(NEEDS_RERANKER)
    retriever = as_yaml(cfg.retriever or parts.settings("retriever", "dense"))
    query_encoder = None if encoder is None else shared_encoder(as_yaml(encoder))
    load = partial(
        load_corpus,
        make_pipeline=partial(build_pipeline, as_yaml(pipeline), retriever, checkpoint=str(artifacts.artifact)),
        compared=compared_pipelines(command, pipeline, retriever, artifacts.artifact),
        make_encoder=None if encoder is None else partial(build_from_yaml, as_yaml(encoder)),
        query_encoder=query_encoder,
        read_dataset=partial(read_dataset, as_yaml(parts.settings("data", f"{folder}/"))),
        cache=parts.cache,
        device=settings.device,
        permissions=settings.permissions,
        language=cfg.language,
    )
    return IndexedCorpus(folder, load, query_encoder, takes_documents=cfg.documents)


def default_pipeline(*, has_encoder: bool) -> str:
    """Return the name of the pipeline that searches a corpus if none is configured.

    Args:
        has_encoder: Whether there is a text encoder. If not, the corpus is searched without vectors.
    """
    return "expand_then_rerank" if has_encoder else "expand_then_rerank_bm25"


def compared_pipelines(
    command: CommandContext, pipeline: DictConfig, retriever: str, artifact: Path
) -> Mapping[str, MakePipeline]:
    """Return functions that build the pipelines of the setting ``compare``. The page shows their rankings.

    Args:
        command: Running command.
        pipeline: Settings of the service's pipeline. Compared checkpoints rerank in this pipeline, too.
        retriever: Settings of the retriever, in YAML.
        artifact: Folder of the served artifact, with which compared pipelines rerank.

    Returns:
        Functions by the name that the page shows.
    """
    parts, compare = command.parts, list(command.cfg.compare)
    makers: dict[str, MakePipeline] = {}
    for system in name_systems(compare, parts.choices("pipeline")) if compare else []:
        if system.kind == "pipeline":
            settings, checkpoint = parts.settings("pipeline", system.source), str(artifact)
        else:
            settings, checkpoint = pipeline, str(locate_model(system.source))
        makers[system.label] = partial(build_pipeline, as_yaml(settings), retriever, checkpoint=checkpoint)
    return makers


def ends_with_checkpoint(pipeline: DictConfig) -> bool:
    """Return whether the last step of a pipeline reranks with a checkpoint, which the artifact replaces.

    Args:
        pipeline: Settings of the pipeline.

    Returns:
        True if the scorer's class is a subclass of :class:`~graphrerank.core.loads_checkpoint.LoadsCheckpoint`.
    """
    last = (pipeline.get("steps") or [{}])[-1]
    target = (last.get("scorer") or {}).get("_target_")
    scorer = None if target is None else get_object(target)
    return isinstance(scorer, type) and issubclass(scorer, LoadsCheckpoint)


@cache
def shared_encoder(settings: str) -> OncePerProcess[MemoryVectorCache]:
    """Return the factory of an encoder. Equal settings return the same factory, so that the encoder is built once.

    Args:
        settings: Settings of the encoder, in YAML.
    """
    return OncePerProcess(partial(build_cached_encoder, settings))


def service_settings(cfg: DictConfig) -> ServiceSettings:
    """Return the settings of the service.

    Args:
        cfg: Settings of ``conf/serve.yaml``.
    """
    plain = {field.name: cfg[field.name] for field in fields(ServiceSettings) if field.name in cfg}
    device = cfg.device or ("cuda" if torch.cuda.is_available() else "cpu")
    standby = cfg.get("standby")
    converted = {
        "cors_origins": tuple(cfg.cors_origins),
        "device": device,
        "standby": int(device == "cpu") if standby is None else standby,
        "limits": Limits(**cfg.limits),
        "permissions": PermissionSettings(**cfg.permissions),
        "feedback": FeedbackSettings(**cfg.feedback),
        "page": chosen_page(cfg),
    }
    return ServiceSettings(**{**plain, **converted})


def chosen_page(cfg: DictConfig) -> PageSettings | None:
    """Return the settings of the search page.

    Args:
        cfg: Settings of ``conf/serve.yaml``.

    Returns:
        Settings of the page, or None if the page is disabled.
    """
    if not cfg.page:
        return None
    name = Path(cfg.artifact or cfg.checkpoint).name
    index = None if cfg.index is None else Path(cfg.index)
    return page_settings(name, index, has_permissions=PermissionSettings(**cfg.get("permissions", {})).are_set)
