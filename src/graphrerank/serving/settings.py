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
    """Settings of the page on which people look at rankings.

    Attributes:
        name: Name of the artifact.
        searches: Whether there is an indexed corpus.
        questions: Questions to try.
    """

    name: str
    searches: bool = False
    questions: Sequence[str] = ()


@dataclass(frozen=True)
class BenchSettings:
    """Settings of mode=bench, which times the formats of an artifact.

    Attributes:
        candidates: Number of candidates of each query.
        edges: Number of edges among them.
        batch_queries: Number of queries of a batch.
        rounds: Number of rounds. Each times every format.
    """

    candidates: int = 100
    edges: int = 300
    batch_queries: int = 32
    rounds: int = 50


@dataclass(frozen=True)
class ServerSettings:
    """Settings of a server that the command and Python share.

    Attributes:
        host: Address to listen on: 127.0.0.1 for this machine only, or 0.0.0.0 for other machines too, which needs
            `api_key`.
        port: Port to listen on, 0 to 65535.
        workers: Number of processes, each of which reads requests and ranks. Use 1 on a GPU or with little memory.
        batch_requests: Number of requests to rank together, at most. 1 disables batching.
        batch_candidates: Number of documents at which a batch is full.
        num_threads: Number of torch threads of each process.
        api_key: Key that clients must send as a bearer token. null or an empty text requires none.
        allow_no_key: Whether to serve other machines without a key, as behind a proxy that has its own.
        cors_origins: Web pages that may call the service.
        shutdown_seconds: Time to finish what is in flight at the end, in seconds.
        limits: Limits of requests; docs/serving.md says what happens beyond each.
        permissions: Source of the callers' principals, for an index whose documents or edges have some
            (docs/permissions.md).
        feedback: Log of what was shown and clicked, from which graphrerank learns (docs/feedback.md).
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
        mode: What to do. One of: http (answer requests), export (write `checkpoint` to the folder `artifact`), bench
            (time the formats of the artifact).
        checkpoint: Checkpoint to export: a run folder, a .ckpt file, the name of a checkpoint that ships with the
            package, or owner/name on the hub. With mode=http it is exported once and then served; the export is reused
            as long as the checkpoint is the same. null serves `artifact` as it is.
        artifact: Without `checkpoint`: the artifact to serve, which is a folder that an export wrote or a link to one,
            a name that ships with the package, or owner/name on the hub. A changed one is taken over without a break.
            With `checkpoint`: the folder that the export is written to, where an older artifact is replaced. null
            writes to runs/export.
        formats: Formats to export `checkpoint` in: a list of torchscript, onnx and aot (machine code for this kind of
            processor, compiled in minutes). null writes with mode=export every format that can be written here for the
            model, and with mode=http or bench `format` and TorchScript, in whose place a model that does not script has
            onnx or aot.
        shadow: Another artifact that ranks what was answered too, off the requests' path. The difference is logged
            (docs/feedback.md). null has none.
        interleave: Another artifact whose results are interleaved with those of `artifact`, until feedback shows that
            it is worse. null has none.
        revision: Branch, tag or commit of the `checkpoint` or `artifact` owner/name on the Hugging Face hub. null is
            the newest.
        format: Format of the artifact that serves. One of: torchscript, onnx, aot. null is aot where the artifact has
            it, else TorchScript.
        bench: Settings of mode=bench.
        index: Data set folder, or corpus folder (graphrerank prepare), which POST /search searches. A changed one is
            taken over without a break. null has no search.
        compare: Checkpoints, or files of conf/pipeline, whose rankings of the index the page shows next to the
            service's.
        language: Language in which words are matched, for requests that name none and for an index. auto is that of the
            passages if their stop words are sure, else english; or a name as of data.language.
        page: Whether to show a page at / on which people look at rankings.
        browser: Whether graphrerank demo opens the page in a browser, where there is a screen.
        documents: Whether POST and DELETE /documents add and remove passages of a corpus folder while it is served.
        service: Settings of the service of a model that is no reranker, such as service.stanza_folder=DIR of a
            complexity adapter.
        standby: Number of further processes that have loaded everything and take the place of a worker that died or
            hangs. null is 1, and 0 on a GPU. 0 saves the memory of a process.
        device: Device of the model and the encoder. null is cuda where there is one, else cpu.
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
        standby: Number of further processes that have loaded everything and take the place of a worker that is gone.
        device: Device of the model: cpu or cuda.
        page: Page at ``/``. None has no page.

    Raises:
        ValueError: If a setting does not fit, or other machines would be served without a key.
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
            needed = f"set (GRAPHRERANK_API_KEY) where host={self.host} is reached from other machines"
            raise UserError(f"`api_key` must be {needed}, got none; behind a proxy with a key: allow_no_key=true")

    @property
    def is_local(self) -> bool:
        """Whether only this machine is served."""
        return self.host in LOCAL_HOSTS
