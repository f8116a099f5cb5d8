"""Assemble a service from routes and from the engines that answer them.

Engines are built in worker processes. The functions here only describe them by picklable factories.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphrerank.artifacts.artifact import Artifact, model_info, read_artifact_manifest
from graphrerank.core import PairEncoder
from graphrerank.corpus_store.opening import is_corpus_folder
from graphrerank.data.encoder import Encoder
from graphrerank.installation.plugins import load_service
from graphrerank.serving.batching import FEEDBACK
from graphrerank.serving.deployment.artifact_search import ArtifactSearch
from graphrerank.serving.deployment.deployed_engine import DeployedEngine
from graphrerank.serving.deployment.shadow import SHADOW_OF
from graphrerank.serving.engine import EngineFactory
from graphrerank.serving.engines.documents import DocumentsEngine
from graphrerank.serving.engines.feedback import FeedbackEngine
from graphrerank.serving.engines.inspection import InspectEngine
from graphrerank.serving.engines.rerank import load_rerank_engine
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import SearchableCorpus
from graphrerank.serving.feedback_log import folder_key, open_log
from graphrerank.serving.limits import Limits
from graphrerank.serving.routes import Route
from graphrerank.serving.server import Service
from graphrerank.serving.settings import FeedbackSettings, ServiceSettings
from graphrerank.serving.setup.once_per_process import OncePerProcess
from graphrerank.serving.standard_routes import (
    ADD_DOCUMENTS,
    ADD_FEEDBACK,
    INSPECT,
    REMOVE_DOCUMENTS,
    REMOVE_FEEDBACK,
    RERANK,
    RERANK_ROUTES,
    SEARCH,
)
from graphrerank.text.languages import AUTO
from graphrerank.utils.checks import UserError

NEEDS_RERANKER = "`shadow` and `interleave` require a `pipeline` whose last step is the artifact's reranker"


@dataclass(frozen=True)
class ServedArtifacts:
    """Artifacts of a service. Each can be replaced while the service runs, by new content or by a new target of a link.

    Attributes:
        artifact: Folder of the artifact that answers.
        rival: Folder of an artifact whose results are interleaved with those of ``artifact``, until feedback shows that
            it is worse. None for no comparison.
        shadow: Folder of an artifact that ranks the same requests in the background. Only the differences are logged.
            None for no shadow.
    """

    artifact: Path
    rival: Path | None = None
    shadow: Path | None = None

    @property
    def are_compared(self) -> bool:
        """Whether there is more than one artifact."""
        return self.rival is not None or self.shadow is not None


@dataclass(frozen=True)
class RerankerLoading:
    """Options for loading the reranker of an artifact in each process.

    Attributes:
        make_encoder: Picklable factory of the text encoder. None for models that need no vectors.
        make_pair_encoder: Picklable factory of the cross-encoder of a GRanker head. None for other models.
        format_name: Format to load. None for the artifact's fastest format.
        language: Language of word matching for requests without a language. ``auto`` is the language of their
            documents.
    """

    make_encoder: Callable[[], Encoder] | None = None
    make_pair_encoder: Callable[[], PairEncoder] | None = None
    format_name: str | None = None
    language: str = AUTO


@dataclass(frozen=True)
class IndexedCorpus:
    """Corpus that a service searches.

    Attributes:
        folder: Data set folder or corpus folder. It is reloaded if it changes while the service runs.
        load: Picklable function that loads the corpus from the folder, such as a ``functools.partial`` of
            :func:`~graphrerank.serving.setup.corpus.load_corpus`. The last step of its pipeline is the reranker of the
            artifact that is served.
        make_encoder: Picklable factory of the encoder of new passages. None for a corpus without vectors.
        takes_documents: Whether ``/documents`` may change ``folder``, if it is a corpus folder.
    """

    folder: Path
    load: Callable[[Path], SearchableCorpus]
    make_encoder: Callable[[], Encoder] | None = None
    takes_documents: bool = True


class EngineGroup(NamedTuple):
    """Routes, and the engines that answer them.

    Attributes:
        routes: Routes that the engines answer.
        factories: Factories of the engines by kind, in the order in which a process builds them.
    """

    routes: list[Route]
    factories: dict[str, EngineFactory]


def rerank_service(
    artifacts: ServedArtifacts,
    settings: ServiceSettings,
    *,
    loading: RerankerLoading | None = None,
    index: IndexedCorpus | None = None,
) -> Service:
    """Assemble the service of a reranker.

    Args:
        artifacts: Folders of the artifacts.
        settings: Settings of the service.
        loading: Options for loading the reranker. If None, its fastest format is loaded without an encoder.
        index: Corpus to search. If None, the service only reranks the documents of requests.

    Returns:
        The service, to be run by :func:`~graphrerank.serving.server.run`.

    Raises:
        UserError: If an artifact cannot be read, or is interleaved without a feedback log.

    Example:
        Serve the shipped checkpoint ``base`` with another encoder::

            artifacts = ServedArtifacts(PRETRAINED / "base")
            loading = RerankerLoading(make_encoder=partial(MiniLM, device="cpu"))
            run(rerank_service(artifacts, ServiceSettings(port=8000), loading=loading))
    """
    if artifacts.rival is not None and settings.feedback.path is None:
        raise UserError(
            "`feedback.path` must be set if `interleave` is set, because feedback decides the comparison, got none"
        )
    groups = [rerank_group(artifacts, loading or RerankerLoading(), settings)]
    if settings.feedback.path is not None:
        groups.append(feedback_group(settings.feedback))
    if index is not None:
        groups.append(search_group(artifacts, index, settings))
        if index.takes_documents and is_corpus_folder(index.folder):
            groups.append(documents_group(index, knows_callers=settings.permissions.are_set))
    routes = [route for group in groups for route in group.routes]
    factories = {kind: make for group in groups for kind, make in group.factories.items()}
    return Service(factories, routes, settings, model_info(read_artifact_manifest(artifacts.artifact)))


def rerank_group(artifacts: ServedArtifacts, loading: RerankerLoading, settings: ServiceSettings) -> EngineGroup:
    """Return the routes and engines that rerank the documents of requests.

    Args:
        artifacts: Folders of the artifacts.
        loading: Options for loading the reranker.
        settings: Settings of the service.

    Returns:
        ``/v1/rerank``, ``/v2/rerank`` and ``/rerank`` with their engine, and the engine of the shadow.
    """
    make = partial(
        load_rerank_engine,
        limits=settings.limits,
        device=settings.device,
        format_name=loading.format_name,
        language=loading.language,
        make_encoder=loading.make_encoder,
        make_pair_encoder=loading.make_pair_encoder,
    )
    factories: dict[str, EngineFactory] = {
        RERANK.kind: partial(
            DeployedEngine, make, artifacts.artifact, rival=artifacts.rival, log=log_folder(settings.feedback)
        )
    }
    if artifacts.shadow is not None:
        factories[SHADOW_OF + RERANK.kind] = partial(DeployedEngine, make, artifacts.shadow)
    return EngineGroup(list(RERANK_ROUTES), factories)


def feedback_group(settings: FeedbackSettings) -> EngineGroup:
    """Return the routes and the engine of the feedback log. The key of its pseudonyms is created if there is none.

    Args:
        settings: Settings of the log, with a ``path``.

    Returns:
        ``POST`` and ``DELETE /feedback`` with their engine.
    """
    assert settings.path is not None
    folder_key(Path(settings.path))
    return EngineGroup([ADD_FEEDBACK, REMOVE_FEEDBACK], {FEEDBACK: partial(load_feedback_engine, settings)})


def search_group(artifacts: ServedArtifacts, index: IndexedCorpus, settings: ServiceSettings) -> EngineGroup:
    """Return the routes and engines that search a corpus. The engines share one corpus in each process.

    Args:
        artifacts: Folders of the artifacts.
        index: Corpus to search.
        settings: Settings of the service. With a page, searches can be inspected.

    Returns:
        ``/search`` and, with a page, ``/inspect`` with their engines, and the engine of the shadow.
    """
    corpus = OncePerProcess(partial(SearchEngine, index.load, index.folder))
    make = partial(load_artifact_search, corpus, needs_reranker=artifacts.are_compared)
    live = OncePerProcess(
        partial(DeployedEngine, make, artifacts.artifact, rival=artifacts.rival, log=log_folder(settings.feedback))
    )
    group = EngineGroup([SEARCH], {SEARCH.kind: live})
    if artifacts.shadow is not None:
        group.factories[SHADOW_OF + SEARCH.kind] = partial(DeployedEngine, make, artifacts.shadow)
    if settings.page is not None:
        group.routes.append(INSPECT)
        group.factories[INSPECT.kind] = partial(load_inspect_engine, live, settings.limits)
    return group


def documents_group(index: IndexedCorpus, *, knows_callers: bool) -> EngineGroup:
    """Return the routes and the engine that add and remove passages of a corpus folder.

    Args:
        index: Corpus folder.
        knows_callers: Whether the service authenticates callers. Otherwise nobody may change a corpus with access
            restrictions.

    Returns:
        ``POST`` and ``DELETE /documents`` with their engine.
    """
    make = partial(DocumentsEngine, index.folder, index.make_encoder, knows_callers=knows_callers)
    return EngineGroup([ADD_DOCUMENTS, REMOVE_DOCUMENTS], {ADD_DOCUMENTS.kind: make})


def model_service(
    artifact: Artifact, format_name: str | None, settings: ServiceSettings, options: Mapping[str, Any]
) -> Service:
    """Assemble the service of a model that is not a reranker, by the entry point of its package.

    Args:
        artifact: Artifact to serve.
        format_name: Format to load. If None, the artifact's first format.
        settings: Settings of the service.
        options: Keyword arguments of the entry point's function.

    Returns:
        The service.

    Raises:
        UserError: If no package serves such a model, or if ``options`` are invalid for its function.
    """
    serve = load_service(artifact.manifest.model.name)
    try:
        routes, factories = serve(artifact.folder, format_name, **options)
    except TypeError as error:
        raise UserError(f"`service` must contain only arguments of {serve.__name__}: {error}") from error
    return Service(dict(factories), list(routes), settings, model_info(artifact.manifest))


def log_folder(settings: FeedbackSettings) -> Path | None:
    """Return the folder of the feedback log.

    Args:
        settings: Settings of the log.

    Returns:
        The folder, or None if nothing is logged.
    """
    return None if settings.path is None else Path(settings.path)


def load_artifact_search(corpus: Callable[[], SearchEngine], folder: Path, *, needs_reranker: bool) -> ArtifactSearch:
    """Load an artifact to search a corpus in a worker.

    Args:
        corpus: Function that returns the engine that searches the corpus.
        folder: Folder of the artifact.
        needs_reranker: Whether the artifact must be the last step of the pipeline, because it is compared with another
            one.

    Returns:
        The search.

    Raises:
        UserError: If ``needs_reranker`` and the last step of the pipeline is not a reranker.
    """
    search = ArtifactSearch(corpus(), folder)
    if needs_reranker and search.scorer is None:
        raise UserError(NEEDS_RERANKER)
    return search


def load_inspect_engine(live: Callable[[], DeployedEngine], limits: Limits) -> InspectEngine:
    """Load the engine of ``/inspect`` in a worker.

    Args:
        live: Function that returns the engine that searches.
        limits: Limits of the service.

    Returns:
        An engine that inspects the searches of ``live``, even after its artifact is replaced.
    """
    engine = live()
    return InspectEngine(engine.live.search, limits, lambda: engine.live.scorer, lambda: engine.live_name)


def load_feedback_engine(settings: FeedbackSettings) -> FeedbackEngine:
    """Load the engine of ``/feedback`` in a worker.

    Args:
        settings: Settings of the log.

    Returns:
        The engine.
    """
    return FeedbackEngine(open_log(settings))
