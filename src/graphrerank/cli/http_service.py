"""``python serve.py``: answer HTTP requests from a checkpoint, which is exported first, or from an artifact."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from graphrerank.artifacts.artifact import fastest_format, load_artifact, model_info, read_artifact_manifest
from graphrerank.artifacts.export import export_artifact
from graphrerank.artifacts.formats import FORMATS, Runner
from graphrerank.cli.command import NONE, Command
from graphrerank.cli.export import exported
from graphrerank.core import PairEncoder
from graphrerank.corpus_store.opening import is_corpus_folder
from graphrerank.corpus_store.preparation import with_words
from graphrerank.data.candidates import with_vectors
from graphrerank.data.readers.records import read_jsonl
from graphrerank.data.vector_cache import MemoryVectorCache, VectorCache
from graphrerank.evaluation.plan import name_systems
from graphrerank.installation.plugins import load_service
from graphrerank.models.checkpoint import WEIGHTS, find_checkpoint, library_versions, load_checkpoint
from graphrerank.models.manifest import MANIFEST, RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.rerank.hub import is_hub_id, locate_model, model_source
from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.batching import FEEDBACK
from graphrerank.serving.deployment.artifact_search import ArtifactSearch
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.engine import EngineFactory
from graphrerank.serving.engines.documents import DocumentsEngine
from graphrerank.serving.engines.feedback import FeedbackEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.rerank import load_rerank_engine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.feedback_log import FeedbackSettings, folder_key, open_log
from graphrerank.serving.limits import Limits
from graphrerank.serving.routes import SHADOW_OF, Route
from graphrerank.serving.schemas.documents import AddDocuments, DocumentsResponse, RemoveDocuments
from graphrerank.serving.schemas.feedback import AddFeedback, FeedbackResponse, RemoveFeedback
from graphrerank.serving.schemas.inspection import InspectRequest, InspectResponse
from graphrerank.serving.schemas.rerank import RerankRequest, RerankResponse, render_rerank
from graphrerank.serving.schemas.search import SearchRequest, SearchResponse
from graphrerank.serving.schemas.tei import TeiRequest, TeiResult, render_tei
from graphrerank.serving.server import Service, run
from graphrerank.serving.settings import PageSettings, ServiceSettings
from graphrerank.text.languages import AUTO, language_of
from graphrerank.utils.caching import hash_texts, short_hash
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import hash_files

NUM_QUESTIONS = 4  # of a corpus, to try on the page
SCORER = ".CheckpointScorer"
MAX_QUESTION = 300  # characters
RERANK = Route(
    ("/v1/rerank", "/v2/rerank"),
    "rerank",
    RerankRequest,
    RerankResponse,
    "Rank documents, in Cohere's wire format.",
    render_rerank,
)
TEI = Route(
    ("/rerank",),
    "rerank",
    TeiRequest,
    list[TeiResult] | RerankResponse,
    "Rank `texts`, in TEI's wire format, or `documents`, in Cohere's.",
    render_tei,
    with_documents=RerankRequest,
)
INSPECT = Route(
    ("/inspect",), "inspect", InspectRequest, InspectResponse, "Search the indexed corpus, and return every step of it."
)
SEARCH = Route(("/search",), "search", SearchRequest, SearchResponse, "Search the indexed corpus.")
ADD_DOCUMENTS = Route(
    ("/documents",), "documents", AddDocuments, DocumentsResponse, "Add passages to the corpus, or replace some."
)
REMOVE_DOCUMENTS = Route(
    ("/documents",),
    "documents",
    RemoveDocuments,
    DocumentsResponse,
    "Remove passages from the corpus.",
    method="DELETE",
)
ADD_FEEDBACK = Route(
    ("/feedback",),
    FEEDBACK,
    AddFeedback,
    FeedbackResponse,
    "Say which results of an answer were clicked, cited, accepted or dismissed.",
)
REMOVE_FEEDBACK = Route(
    ("/feedback",), FEEDBACK, RemoveFeedback, FeedbackResponse, "Delete what is remembered of a user.", method="DELETE"
)


def serve_http(cfg: DictConfig) -> Path:
    """Serve until a signal ends it; the artifact's folder is the last line printed, before the first request."""
    if cfg.artifact is None and cfg.checkpoint is None:
        raise UserError(
            "mode=http needs `checkpoint`, which is exported once and served, or `artifact`: a folder that mode=export "
            "wrote, got neither"
        )
    if cfg.language != AUTO:
        language_of(cfg.language)
    settings, command = service_settings(cfg), Command(cfg)
    folder = artifact_folder(cfg)
    format_name = cfg.format or fastest_format(read_artifact_manifest(folder), settings.device)
    artifact = load_artifact(folder, format_name)
    if isinstance(artifact.manifest, RerankerManifest):
        if isinstance(artifact.module, Runner):
            artifact.module.check_device(torch.device(settings.device))
        encoder, trained = cfg.encoder, artifact.manifest.encoder
        if encoder is None and trained is not None and command.choice("encoder") != NONE:
            encoder = command.parts.from_manifest("encoder", trained).settings
        make_encoder = None if encoder is None else partial(shared_encoder, as_yaml(encoder))
        read: dict[str, Any] = {"format_name": cfg.format, "language": cfg.language, "make_encoder": make_encoder}
        if (of_pairs := artifact.manifest.pair_encoder) is not None:
            group: Any = cfg.pair_encoder or command.parts.from_manifest("pair_encoder", of_pairs).settings
            read["make_pair_encoder"] = partial(shared_pair_encoder, as_yaml(group))
        make = partial(load_rerank_engine, limits=settings.limits, device=settings.device, **read)
        others = ("interleave", "shadow")
        rival, shadow = (None if cfg[name] is None else artifact_folder(cfg, name) for name in others)
        log = None if settings.feedback.path is None else Path(settings.feedback.path)
        if rival is not None and log is None:
            raise UserError("`interleave` needs `feedback.path`, the log of what users prefer, got none")
        routes: list[Route] = [RERANK, TEI]
        engines: dict[str, EngineFactory] = {"rerank": partial(DeployedEngine, make, folder, rival=rival, log=log)}
        if shadow is not None:
            engines[SHADOW_OF + "rerank"] = partial(DeployedEngine, make, shadow)
        if log is not None:
            folder_key(log)
            routes += [ADD_FEEDBACK, REMOVE_FEEDBACK]
            engines[FEEDBACK] = partial(_feedback_engine, settings.feedback)
        if cfg.index is not None:
            add_index(command, settings, routes, engines, artifact=folder, rival=rival, shadow=shadow)
    elif any((cfg.interleave, cfg.shadow, cfg.feedback.path)):
        raise UserError(
            "`interleave`, `shadow` and `feedback` are of rerankers, " + str(folder) + " holds another model"
        )
    elif cfg.index is None:
        serve = load_service(artifact.manifest.model.name)
        try:
            made = serve(artifact.folder, format_name, **cfg.service)
        except TypeError as error:
            raise UserError(f"`service` must hold settings of {serve.__name__}: {error}") from error
        routes, engines = list(made[0]), dict(made[1])
    else:
        name = artifact.manifest.model.name
        raise UserError(f"`index` needs the artifact of a reranker, {artifact.folder} holds a {name}")
    address = f"http://{cfg.host}:{cfg.port}"
    first = SEARCH if cfg.index is not None else routes[0]
    print(f"POST {address}{first.paths[-1]}, described by {address}/openapi.json")
    if settings.page is not None:
        print(f"page: {address}/")
    print(artifact.folder, flush=True)
    run(Service(engines, routes, settings, model_info(artifact.manifest)))
    return artifact.folder


def add_index(
    command: Command,
    settings: ServiceSettings,
    routes: list[Route],
    engines: dict[str, EngineFactory],
    *,
    artifact: Path,
    rival: Path | None,
    shadow: Path | None,
) -> None:
    """Add the routes and engines of ``index``, whose pipeline's reranker is the artifact."""
    cfg, parts, folder = command.cfg, command.parts, Path(command.cfg.index)
    if not folder.is_dir():
        raise UserError(f"`index` must be a data set folder or a corpus folder, got {cfg.index!r}")
    encoder = cfg.encoder
    if encoder is None and command.choice("encoder") != NONE:
        encoder = parts.settings("encoder", "minilm")
    pipeline = cfg.pipeline or parts.settings("pipeline", "expand_then_rerank")
    last = (pipeline.get("steps") or [{}])[-1]
    if (rival or shadow) and not str((last.get("scorer") or {}).get("_target_")).endswith(SCORER):
        raise UserError("`shadow` and `interleave` need a `pipeline` whose last step is the artifact's reranker")
    log = None if settings.feedback.path is None else Path(settings.feedback.path)
    compared = {
        entry.label: with_checkpoint(parts.settings("pipeline", entry.source), str(artifact))
        if entry.kind == "pipeline"
        else with_checkpoint(pipeline, locate_model(entry.source))
        for entry in (name_systems(list(cfg.compare), parts.choices("pipeline")) if cfg.compare else [])
    }
    load = partial(
        load_corpus,
        data=parts.settings("data", f"{folder}/"),
        encoder=encoder,
        retriever=cfg.retriever or parts.settings("retriever", "dense"),
        pipeline=with_checkpoint(pipeline, str(artifact)),
        compared=compared,
        cache=parts.cache,
        device=settings.device,
        permissions=settings.permissions,
        language=cfg.language,
    )
    routes.append(SEARCH)
    search = partial(deployed_search, load, folder)
    engines["search"] = partial(search, artifact, rival, log)
    if shadow is not None:
        engines[SHADOW_OF + "search"] = partial(search, shadow, None, None)
    if settings.page is not None:
        routes.append(INSPECT)
        engines["inspect"] = partial(_inspect_engine, partial(search, artifact, rival, log), settings.limits)
    if cfg.documents and is_corpus_folder(folder):
        routes += [ADD_DOCUMENTS, REMOVE_DOCUMENTS]
        make_encoder = None if encoder is None else partial(shared_encoder, as_yaml(encoder))
        engines["documents"] = partial(
            DocumentsEngine, folder, make_encoder, knows_callers=settings.permissions.are_set
        )


def artifact_folder(cfg: DictConfig, name: str = "artifact") -> Path:
    """Find the artifact that the setting ``name`` names; a link stays one.

    With ``checkpoint``, the setting ``artifact`` is the folder that the checkpoint is exported to
    (:func:`~graphrerank.cli.export.exported`).

    Of a model on the hub only manifest and safetensors are downloaded, which hold no program. They are exported into
    the cache, past the parity gate: TorchScript and its like never come from there.
    """
    if cfg.format not in (None, *FORMATS):
        raise UserError(f"`format` must be one of {list(FORMATS)} or null, got {cfg.format!r}")
    if name == "artifact" and cfg.checkpoint is not None:
        return exported(cfg)
    given = str(cfg[name])
    located = locate_model(given, revision=cfg.revision if name == "artifact" else None)
    if not is_hub_id(given):
        folder = find_checkpoint(located)
        if not (folder / MANIFEST).is_file():
            raise UserError(
                f"`{name}` must be a folder that an export wrote (python serve.py mode=export "
                f"checkpoint={given} artifact=DIR), got {given!r}, which has no {MANIFEST}"
            )
        return folder
    print(model_source(given, located), flush=True)
    downloaded, formats = Path(located), [cfg.format or "torchscript"]
    content = hash_files([downloaded / MANIFEST, downloaded / WEIGHTS])
    parts = [content, *formats, *(f"{name} {version}" for name, version in library_versions().items())]
    key = short_hash(hash_texts(parts))
    folder = Path(cfg.paths.cache) / "artifacts" / key
    if not folder.is_dir():
        print(f"exporting {given} from its weights", flush=True)
        export_artifact(load_checkpoint(downloaded), folder, formats)
    return folder


def load_corpus(
    folder: Path,
    *,
    data: DictConfig,
    encoder: DictConfig | None,
    retriever: DictConfig,
    pipeline: DictConfig,
    compared: Mapping[str, DictConfig],
    cache: Path,
    device: str,
    permissions: PermissionSettings | None = None,
    language: str = AUTO,
) -> SearchableCorpus:
    """Index a data set folder, or map a corpus folder, for a pipeline whose vector searches ask ``retriever``.

    Words are matched in ``language``, of a corpus folder the one that it was prepared in, or ``auto``.
    """
    permissions = permissions or PermissionSettings()
    # a data set folder is read in a language, a corpus folder has one
    dataset = instantiate(data, path=str(folder), **({"language": language} if "language" in data else {}))
    if language not in (AUTO, dataset.graph.passages.language):
        raise UserError(
            f"`language` must be auto or {dataset.graph.passages.language}, in which {folder} was prepared "
            f"(data.language), got {language!r}"
        )
    if permissions.are_set and is_corpus_folder(folder) and dataset.graph.passages.metadata is None:
        raise UserError(f"`index` {folder} is of an older version, which kept no principals; prepare it again")
    # separate from the encoder of requests, as the corpus's vectors are kept on disk; loaded only if it encodes
    corpus_encoder = None if encoder is None else VectorCache(instantiate(encoder), cache / "vectors")
    dataset = with_vectors(dataset, corpus_encoder, cache / "candidates")
    dataset = dataset.with_graph(with_words(dataset.graph))
    graph = dataset.graph.to(device)
    bare = None if encoder is None else shared_encoder(as_yaml(encoder))

    def build(group: DictConfig) -> Pipeline:
        built: Pipeline = instantiate(group)(graph, retriever=instantiate(retriever), text_encoder=bare)
        return built

    return SearchableCorpus(
        graph,
        build(pipeline),
        bare,
        {name: build(group) for name, group in compared.items()},
        see=partial(dataset.seen_by, statistics=permissions.statistics),
        has_permissions=permissions.are_set or graph.is_guarded,
        fingerprint=dataset.fingerprint,
    )


def as_yaml(settings: DictConfig) -> str:
    """Return resolved settings as text, which another process can read."""
    return OmegaConf.to_yaml(settings, resolve=True)


@lru_cache(maxsize=2)
def shared_encoder(settings: str) -> MemoryVectorCache:
    """Build the encoder of some settings, in YAML, once in each process, for all engines."""
    return MemoryVectorCache(instantiate(OmegaConf.create(settings)))


@lru_cache(maxsize=1)
def shared_pair_encoder(settings: str) -> PairEncoder:
    """Build the cross-encoder of some settings, in YAML, once in each process."""
    built: PairEncoder = instantiate(OmegaConf.create(settings))
    return built


@lru_cache(maxsize=1)
def shared_search_engine(load: Callable[[Path], SearchableCorpus], folder: Path) -> SearchEngine:
    """Load the corpus, once in each process, whichever engines search it."""
    return SearchEngine(load, folder)


@lru_cache(maxsize=2)  # the one that serves, and its shadow
def deployed_search(
    load: Callable[[Path], SearchableCorpus], folder: Path, artifact: Path, rival: Path | None, log: Path | None
) -> DeployedEngine:
    """Search a corpus by an artifact, once in each process."""
    search = shared_search_engine(load, folder)
    return DeployedEngine(partial(ArtifactSearch, search), artifact, rival=rival, log=log)


def _inspect_engine(search: Callable[[], DeployedEngine], limits: Limits) -> InspectEngine:
    engine = search()
    live: Callable[[], Any] = lambda: engine.live  # noqa: E731
    return InspectEngine(live().search, limits, lambda: live().scorer)


def _feedback_engine(settings: FeedbackSettings) -> FeedbackEngine:
    return FeedbackEngine(open_log(settings))


def service_settings(cfg: DictConfig) -> ServiceSettings:
    """Read how the service runs."""
    named = {field.name: cfg[field.name] for field in fields(ServiceSettings) if field.name in cfg}
    device = cfg.device or ("cuda" if torch.cuda.is_available() else "cpu")
    standby = cfg.get("standby")
    changed = {
        "cors_origins": tuple(cfg.cors_origins),
        "device": device,
        "standby": int(device == "cpu") if standby is None else standby,
        "limits": Limits(**cfg.limits),
        "permissions": PermissionSettings(**cfg.permissions),
        "feedback": FeedbackSettings(**cfg.feedback),
        "page": page_settings(cfg),
    }
    return ServiceSettings(**{**named, **changed})


def page_settings(cfg: DictConfig) -> PageSettings | None:
    """Read what the page knows of the service: its name, and the first questions of the corpus that it searches."""
    if not cfg.page:
        return None
    name = Path(cfg.artifact or cfg.checkpoint).name
    if cfg.index is None:
        return PageSettings(name)
    file, questions = Path(cfg.index) / "queries.jsonl", []
    if (
        file.is_file() and not PermissionSettings(**cfg.get("permissions", {})).are_set
    ):  # they may tell of what is hidden
        records = islice(read_jsonl(file), NUM_QUESTIONS)
        questions = [text[:MAX_QUESTION] for _, record in records if isinstance(text := record.get("text"), str)]
    return PageSettings(name, searches=True, questions=questions)


def with_checkpoint(pipeline: DictConfig, folder: str) -> DictConfig:
    """Return a copy of a pipeline, resolved, whose trained rerankers are all those of a folder."""

    def changed(node: Any) -> Any:
        if isinstance(node, list):
            return [changed(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        node = {key: changed(entry) for key, entry in node.items()}
        return node | {"checkpoint": folder} if str(node.get("_target_")).endswith(SCORER) else node

    settings: DictConfig = OmegaConf.create(changed(OmegaConf.to_container(pipeline, resolve=True)))
    return settings
