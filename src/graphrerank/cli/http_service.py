"""``python serve.py artifact=...``: answer HTTP requests from exported artifacts."""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, get_type_hints

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf

from graphrerank.api import name_systems
from graphrerank.cli.artifacts import artifact_folder
from graphrerank.cli.command import NONE, Command
from graphrerank.cli.schema import check_type
from graphrerank.data.candidates import with_vectors
from graphrerank.data.corpus_folder.opening import is_corpus_folder
from graphrerank.data.encoder import Encoder
from graphrerank.data.readers.records import read_jsonl
from graphrerank.data.vector_cache import VectorCache
from graphrerank.extensions import load_service
from graphrerank.graphs.edge_types import EDGE_TYPES, MEANINGS
from graphrerank.inference.hub import locate_model
from graphrerank.models.manifest import EncoderEntry, Manifest, RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.serving.artifact import Artifact, artifact_formats, load_artifact, read_artifact_manifest
from graphrerank.serving.documents_engine import AddDocuments, DocumentsEngine, DocumentsResponse, RemoveDocuments
from graphrerank.serving.engine import EngineFactory
from graphrerank.serving.formats import Runner
from graphrerank.serving.inspect_engine import InspectEngine, InspectRequest, InspectResponse
from graphrerank.serving.limits import Limits
from graphrerank.serving.rerank_engine import load_rerank_engine
from graphrerank.serving.rerank_request import RerankRequest
from graphrerank.serving.rerank_response import RerankResponse, TeiRequest, TeiResult, render_rerank, render_tei
from graphrerank.serving.routes import Route
from graphrerank.serving.search_engine import SearchableCorpus, SearchEngine, SearchRequest, SearchResponse
from graphrerank.serving.server import Service, run
from graphrerank.serving.settings import PageSettings, ServiceSettings, check_exposure
from graphrerank.text.languages import AUTO, language_of

NUM_QUESTIONS = 4  # of a corpus, to try on the page
MAX_QUESTION = 300  # characters
RERANK = Route(
    ("/v1/rerank", "/v2/rerank"),
    "rerank",
    RerankRequest,
    RerankResponse,
    "Rank documents, in Cohere's wire format.",
    render_rerank,
)
TEI = Route(("/rerank",), "rerank", TeiRequest, list[TeiResult], "Rank texts, in TEI's wire format.", render_tei)
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


def serve_http(cfg: DictConfig) -> Path:
    """Serve until told to end; the artifact's folder is the last line printed, before the first request."""
    if cfg.artifact is None:
        raise ValueError("mode=http needs `artifact`: a folder that `graphrerank export checkpoint=...` wrote")
    check_exposure(cfg.host, cfg.api_key, allow_no_key=cfg.allow_no_key)
    if cfg.language != AUTO:
        language_of(cfg.language)
    settings = service_settings(cfg)
    folder = artifact_folder(cfg)
    format_name = cfg.format or fastest_format(read_artifact_manifest(folder), settings.device)
    artifact = load_artifact(folder, format_name)
    engines: dict[str, EngineFactory]
    if not isinstance(artifact.manifest, RerankerManifest):
        if cfg.index is not None:
            name = artifact.manifest.model.name
            raise ValueError(f"`index` needs the artifact of a reranker, {artifact.folder} holds a {name}")
        routes, engines = model_service(artifact, format_name, {str(key): cfg.service[key] for key in cfg.service})
    else:
        if isinstance(artifact.module, Runner):
            artifact.module.check_device(torch.device(settings.device))
        make_encoder = _encoder_factory(cfg, artifact.manifest.encoder)
        settings = replace(settings, encodes=make_encoder is not None)
        arguments = (artifact.folder, make_encoder, settings.limits, settings.device)
        engines = {"rerank": partial(load_rerank_engine, *arguments, format_name=format_name, language=cfg.language)}
        routes = [RERANK, TEI]
    if cfg.index is not None:
        encoder = _usual_encoder(Command(cfg))
        load = _corpus_loader(cfg, artifact, encoder)
        engines["search"] = partial(shared_search_engine, load, Path(cfg.index))
        routes.append(SEARCH)
        if settings.page is not None:
            engines["inspect"] = partial(_inspect_engine, load, Path(cfg.index), settings.limits)
            routes.append(INSPECT)
        if cfg.documents and is_corpus_folder(cfg.index):
            engines["documents"] = partial(DocumentsEngine, Path(cfg.index), _factory(encoder, build_encoder))
            routes += [ADD_DOCUMENTS, REMOVE_DOCUMENTS]
    address = f"http://{cfg.host}:{cfg.port}"
    first = SEARCH if cfg.index is not None else routes[0]
    print(f"POST {address}{first.paths[-1]}, described by {address}/openapi.json")
    if settings.page is not None:
        print(f"page: {address}/")
    print(artifact.folder, flush=True)
    run(Service(engines, routes, settings, model_info(artifact.manifest)))
    return artifact.folder


def model_service(
    artifact: Artifact, format_name: str | None, settings: Mapping[str, Any]
) -> tuple[list[Route], dict[str, EngineFactory]]:
    """Return the routes and engines of a model that is no reranker, from the package that brings it."""
    serve = load_service(artifact.manifest.model.name)
    try:
        inspect.signature(serve).bind(artifact.folder, format_name, **settings)
    except TypeError as error:
        raise ValueError(f"`service` must hold settings of {serve.__name__}: {error}") from error
    routes, engines = serve(artifact.folder, format_name, **settings)
    return list(routes), dict(engines)


def model_info(manifest: Manifest) -> dict[str, Any]:
    """Return what ``GET /info`` says of the model: its manifest, whether it reads types of edges, and their names."""
    names = {name: [name, *MEANINGS.get(name, "").split()] for name in EDGE_TYPES}
    return {**manifest.content, "edge_types": {"are_read": manifest.inputs.reads_edge_types, "names": names}}


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
    language: str = AUTO,
) -> SearchableCorpus:
    """Index a data set folder, or map a corpus folder, for a pipeline.

    ``data`` reads data set folders, ``encoder`` encodes corpus and queries, ``retriever`` is that of the pipeline's
    vector searches, ``cache`` keeps the corpus's vectors; words are matched in ``language``, of a corpus folder the one
    that it was prepared in, or ``auto``.
    """
    # a data set folder is read in a language, a corpus folder has one
    dataset = instantiate(data, path=str(folder), **({"language": language} if "language" in data else {}))
    if language not in (AUTO, dataset.graph.passages.language):
        raise ValueError(
            f"`language` must be auto or {dataset.graph.passages.language}, in which {folder} was prepared "
            f"(data.language), got {language!r}"
        )
    # of its own: what it encodes in the background must not wait for requests, nor they for it; loaded if it encodes
    corpus_encoder = None if encoder is None else VectorCache(instantiate(encoder), cache / "vectors")
    graph = with_vectors(dataset, corpus_encoder, cache / "candidates").graph.to(device)
    bare = None if encoder is None else shared_encoder(OmegaConf.to_yaml(encoder, resolve=True))

    def build(group: DictConfig) -> Pipeline:
        built: Pipeline = instantiate(group)(graph, retriever=instantiate(retriever), text_encoder=bare)
        return built

    return SearchableCorpus(graph, build(pipeline), bare, {name: build(group) for name, group in compared.items()})


def build_encoder(settings: str) -> Encoder:
    """Build the encoder of some settings, in YAML: the thread that adds documents needs one for itself."""
    encoder: Encoder = instantiate(OmegaConf.create(settings))
    return encoder


@lru_cache(maxsize=2)
def shared_encoder(settings: str) -> Encoder:
    """Build the encoder of some settings, once in each process, for all engines that answer in one thread."""
    return build_encoder(settings)


def fastest_format(manifest: Manifest, device: str) -> str | None:
    """Return the format that answers the most requests: machine code on a CPU if there is any, else None."""
    return "aot" if "aot" in artifact_formats(manifest) and device == "cpu" else None


def service_settings(cfg: DictConfig) -> ServiceSettings:
    """Read how the service runs."""
    for name, kind in get_type_hints(Limits).items():
        check_type(cfg.limits[name], kind, f"limits.{name}")
    named = [field.name for field in fields(ServiceSettings) if field.name in cfg]
    read = {
        "cors_origins": tuple(cfg.cors_origins),
        "device": str(Command(cfg).parts.device),
        "limits": Limits(**OmegaConf.to_container(cfg.limits)),  # type: ignore[arg-type]
        "page": page_settings(cfg),
    }
    return ServiceSettings(**{**{name: cfg[name] for name in named}, **read})


def page_settings(cfg: DictConfig) -> PageSettings | None:
    """Read what the page knows of the service: its name, and the first questions of the corpus that it searches."""
    if not cfg.page:
        return None
    name = Path(cfg.artifact).name
    if cfg.index is None:
        return PageSettings(name)
    file, questions = Path(cfg.index) / "queries.jsonl", []
    if file.is_file():
        records = islice(read_jsonl(file), NUM_QUESTIONS)
        questions = [text[:MAX_QUESTION] for _, record in records if isinstance(text := record.get("text"), str)]
    return PageSettings(name, searches=True, questions=questions)


def _factory(
    encoder: DictConfig | None, build: Callable[[str], Encoder] = shared_encoder
) -> Callable[[], Encoder] | None:
    """Return the factory of an encoder; None for none."""
    return None if encoder is None else partial(build, OmegaConf.to_yaml(encoder, resolve=True))


def _encoder_factory(cfg: DictConfig, trained: EncoderEntry | None) -> Callable[[], Encoder] | None:
    """Return the factory of the chosen encoder, else of the one used in training; None where the model needs none."""
    if cfg.encoder is not None or trained is None or Command(cfg).choice("encoder") == NONE:
        return _factory(cfg.encoder)
    return _factory(Command(cfg).parts.from_manifest("encoder", trained).settings)


def _usual_encoder(command: Command) -> DictConfig | None:
    """Return the settings of the chosen encoder, else of MiniLM; None for none."""
    if command.choice("encoder") == NONE:
        return None
    return command.cfg.encoder or command.parts.settings("encoder", "minilm")


def _corpus_loader(
    cfg: DictConfig, artifact: Artifact, encoder: DictConfig | None
) -> Callable[[Path], SearchableCorpus]:
    """Return what loads the corpus with the chosen pipeline, whose reranker is the artifact."""
    folder = Path(cfg.index)
    if not folder.is_dir():
        raise ValueError(f"`index` must be a data set folder or a corpus folder, got {cfg.index!r}")
    command = Command(cfg)
    parts = command.parts
    own = cfg.pipeline or parts.settings("pipeline", "expand_then_rerank")
    return partial(
        load_corpus,
        data=parts.settings("data", f"{folder}/"),
        encoder=encoder,
        retriever=cfg.retriever or parts.settings("retriever", "dense"),
        pipeline=_with_checkpoint(own, str(artifact.folder)),
        compared=_compared(command, own, str(artifact.folder)),
        cache=parts.cache,
        device=str(parts.device),
        language=cfg.language,
    )


def _compared(command: Command, own: DictConfig, artifact: str) -> dict[str, DictConfig]:
    """Return the pipelines of ``compare``, by name: the service's own with another checkpoint, or another one."""
    named = name_systems(list(command.cfg.compare), command.parts) if command.cfg.compare else []
    return {
        entry.label: _with_checkpoint(command.parts.settings("pipeline", entry.source), artifact)
        if entry.kind == "pipeline"
        else _with_checkpoint(own, locate_model(entry.source))
        for entry in named
    }


@lru_cache(maxsize=1)
def shared_search_engine(load: Callable[[Path], SearchableCorpus], folder: Path) -> SearchEngine:
    """Load the corpus, once in each process, whichever engines search it."""
    return SearchEngine(load, folder)


def _inspect_engine(load: Callable[[Path], SearchableCorpus], folder: Path, limits: Limits) -> InspectEngine:
    return InspectEngine(shared_search_engine(load, folder), limits)


def _with_checkpoint(pipeline: DictConfig, folder: str) -> DictConfig:
    """Return a copy of a pipeline, resolved, whose trained rerankers are all those of a folder."""
    copy = deepcopy(pipeline)
    OmegaConf.resolve(copy)
    _set_checkpoints(copy, folder)
    return copy


def _set_checkpoints(node: Any, folder: str) -> None:
    """Let every checkpoint scorer of a pipeline be the artifact."""
    if isinstance(node, DictConfig):
        if str(node.get("_target_", "")).endswith(".CheckpointScorer"):
            node.checkpoint = folder
        for key in node:
            _set_checkpoints(node[key], folder)
    elif isinstance(node, ListConfig):
        for entry in node:
            _set_checkpoints(entry, folder)
