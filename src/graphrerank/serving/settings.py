"""Settings of a service, of the command that runs it, and of its benchmark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.feedback_log import FeedbackSettings
from graphrerank.serving.limits import Limits
from graphrerank.utils.checks import UserError, check_choice, check_counts

LARGEST_PORT = 65535
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
HOSTS = (*LOCAL_HOSTS, "0.0.0.0", "::")


@dataclass(frozen=True)
class PageSettings:
    """Content of the web page before the first request.

    Attributes:
        name: Name of the artifact.
        searches: Whether there is an indexed corpus to search.
        questions: Example questions.
    """

    name: str
    searches: bool = False
    questions: Sequence[str] = ()


@dataclass(frozen=True)
class BenchSettings:
    """Settings of mode=bench, which times the formats of the artifact.

    Attributes:
        candidates: Number of candidates of each query.
        edges: Number of edges of each query.
        batch_queries: Number of queries in a batch.
        rounds: Number of timed rounds. Every format runs in each round.
    """

    candidates: int = 100
    edges: int = 300
    batch_queries: int = 32
    rounds: int = 50


@dataclass(frozen=True)
class ServerSettings:
    """Settings that the command and the Python API share.

    Attributes:
        host: Address to listen on: 127.0.0.1 accepts connections from this machine only, 0.0.0.0 from other machines
            too, which requires `api_key`.
        port: Port to listen on, 0 to 65535.
        workers: Number of worker processes, each with its own copy of the model. Use 1 on a GPU or with little memory.
        batch_requests: Largest number of requests in a batch. 1 disables batching.
        batch_candidates: Number of documents at which a batch is full.
        num_threads: Number of torch threads of each process.
        api_key: Key that clients must send as a bearer token. null or an empty string requires no key.
        allow_no_key: Whether other machines may connect without a key. Use it behind a proxy that authenticates
            clients.
        cors_origins: Origins of web pages that may call the service.
        shutdown_seconds: Time to finish open requests at shutdown, in seconds.
        limits: Limits of requests. docs/serving.md describes what happens beyond each limit.
        permissions: Source of the callers' principals, for an index whose documents or edges have access restrictions
            (docs/permissions.md).
        feedback: Log of shown results and clicks, from which `graphrerank learn` trains (docs/feedback.md).
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 2
    batch_requests: int = 32
    batch_candidates: int = 4096
    num_threads: int = 1
    api_key: str | None = None
    allow_no_key: bool = False
    cors_origins: Sequence[str] = ()
    shutdown_seconds: int = 30
    limits: Limits = field(default_factory=Limits)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)


@dataclass(frozen=True)
class ServeSettings(ServerSettings):
    """Settings of ``graphrerank serve``.

    Attributes:
        mode: Task of the command. One of: http (start the service), export (export `checkpoint` to the folder
            `artifact`), bench (time the formats of the artifact).
        checkpoint: Checkpoint to export: a run folder, a .ckpt file, the name of a checkpoint that ships with the
            package, or owner/name on the hub. mode=http exports it and serves the export, which is reused until the
            checkpoint changes. null serves `artifact`.
        artifact: Without `checkpoint`, the artifact to serve: an exported folder or a link to one, a name that ships
            with the package, or owner/name on the hub. Changes of the folder or link are picked up without a restart.
            With `checkpoint`, the folder to export to, where an older artifact is replaced. null exports to
            runs/export.
        formats: List of formats to export `checkpoint` in: torchscript, onnx, and aot (machine code for this type of
            processor, compiled in minutes). null with mode=export writes every format that this machine can write for
            the model. null with mode=http or mode=bench writes `format` and TorchScript, or onnx or aot for a model
            that cannot be scripted.
        shadow: Second artifact that ranks the same requests in the background. Only the differences are logged
            (docs/feedback.md). null disables it.
        interleave: Second artifact whose results are interleaved with those of `artifact`, until feedback shows that it
            is worse. null disables it.
        revision: Branch, tag or commit of `checkpoint` or `artifact` on the Hugging Face hub. null is the latest.
        format: Format of the artifact to serve. One of: torchscript, onnx, aot. null is aot if the artifact has it,
            otherwise TorchScript.
        bench: Settings of mode=bench.
        index: Data set folder, or corpus folder (graphrerank prepare), that POST /search searches. Changes are picked
            up without a restart. null disables search.
        compare: Checkpoints or files of conf/pipeline whose rankings of the index the page shows next to the ranking of
            the service.
        language: Language of word matching, for the index and for requests without a language. auto detects the
            language from the stop words of the passages and falls back to english. Otherwise a language name as in
            data.language.
        page: Whether to serve a web page at / to try out the service.
        browser: Whether graphrerank demo opens the page in a browser, if there is a screen.
        documents: Whether POST and DELETE /documents may change a corpus folder while it is served.
        service: Settings of the service of a model that is not a reranker, such as service.stanza_folder=DIR for a
            complexity adapter.
        standby: Number of additional processes that have loaded everything and replace a worker that dies or hangs.
            null is 1, or 0 on a GPU. 0 saves the memory of one process.
        device: Device of the model and the encoder. null is cuda if available, otherwise cpu.
    """

    mode: str = "http"
    checkpoint: str | None = None
    artifact: str | None = None
    formats: Sequence[str] | None = None
    shadow: str | None = None
    interleave: str | None = None
    revision: str | None = None
    format: str | None = None
    bench: BenchSettings = field(default_factory=BenchSettings)
    index: str | None = None
    compare: Sequence[str] = ()
    language: str = "auto"
    page: bool = True
    browser: bool = True
    documents: bool = True
    service: Mapping[str, Any] = field(default_factory=dict)
    standby: int | None = None
    device: str | None = None


@dataclass(frozen=True)
class ServiceSettings(ServerSettings):
    """Settings of a service that is ready to run.

    Attributes:
        standby: Number of additional processes that have loaded everything and replace a worker that dies or hangs.
        device: Device of the model, ``cpu`` or ``cuda``.
        page: Content of the web page at ``/``. If None, there is no page.

    Raises:
        ValueError: If a setting is invalid, or if other machines could connect without a key.
    """

    standby: int = 1
    device: str = "cpu"
    page: PageSettings | None = None

    def __post_init__(self) -> None:
        check_choice(HOSTS, host=self.host)
        if not 0 <= self.port <= LARGEST_PORT:
            raise UserError(f"`port` must be 0 to {LARGEST_PORT}, got {self.port}")
        check_counts(workers=self.workers, num_threads=self.num_threads)
        if self.standby < 0:
            raise UserError(f"`standby` must be at least 0, got {self.standby}")
        check_counts(batch_requests=self.batch_requests, batch_candidates=self.batch_candidates)
        if not (self.is_local or self.api_key or self.allow_no_key):
            raise UserError(
                f"`api_key` must be set because host={self.host} accepts connections from other machines, got none. "
                "Set GRAPHRERANK_API_KEY, or allow_no_key=true behind a proxy that authenticates clients"
            )

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in LOCAL_HOSTS
