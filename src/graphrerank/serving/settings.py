"""Settings of a service, of the command that runs it, and of its benchmark.

This module imports neither torch nor the server, so that ``graphrerank serve --help`` answers at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphrerank.installation.extras import require_extra
from graphrerank.serving.limits import Limits
from graphrerank.utils.checks import UserError, check_choice, check_counts
from graphrerank.utils.visibility import STATISTICS

LARGEST_PORT = 65535
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
HOSTS = (*LOCAL_HOSTS, "0.0.0.0", "::")
ALGORITHMS = ("HS256", "RS256")
KEY_BYTES = 32  # smallest size of an HS256 key, the size of its hash


@dataclass(frozen=True)
class PermissionSettings:
    """Source of the callers' principals. If none of these settings is used, only public documents are searched.

    Attributes:
        algorithm: Algorithm of the tokens in `Authorization: Bearer TOKEN`. One of: HS256, RS256, null (no tokens).
        key: Key to verify tokens: a secret of at least 32 bytes for HS256, or a public key in PEM format for RS256.
        audience: Audience that a token must have.
        issuer: Issuer that a token must have. null accepts any issuer.
        claim: Claim of a token with the principals: a list, or a string of names separated by spaces. Dots separate
            nested claims, as in realm_access.roles.
        header: Header with the principals, used instead of tokens. Names are separated by commas; a name that contains
            commas must be in double quotes. A proxy must set or remove the header in every request. null disables it.
        trust_body: Whether requests may name their own `principals`. Only for trials and trusted clients.
        statistics: Passages whose word frequencies and derived edges are used. One of: visible (only those visible to
            the caller), global (the whole corpus). global is faster, but leaks information about hidden documents.

    Raises:
        ValueError: If a setting is invalid.
    """

    algorithm: str | None = None
    key: str | None = field(default=None, repr=False)
    audience: str | None = None
    issuer: str | None = None
    claim: str = "principals"
    header: str | None = None
    trust_body: bool = False
    statistics: str = "visible"

    def __post_init__(self) -> None:
        check_choice(STATISTICS, **{"permissions.statistics": self.statistics})
        if self.algorithm is None:
            return
        check_choice(ALGORITHMS, **{"permissions.algorithm": self.algorithm})
        require_extra("serve", f"permissions.algorithm={self.algorithm}")
        if not self.key or not self.audience:
            raise UserError("`permissions.key` and `permissions.audience` must be set to verify tokens, got none")
        if self.algorithm == "HS256" and len(self.key.encode()) < KEY_BYTES:
            raise UserError(f"`permissions.key` must have at least {KEY_BYTES} bytes for HS256, got {len(self.key)}")
        if self.algorithm == "RS256" and "PUBLIC KEY" not in self.key:
            raise UserError("`permissions.key` must be a public key in PEM format for RS256")
        if self.header is not None:
            raise UserError("`permissions.header` must be null if `permissions.algorithm` is set")

    @property
    def are_set(self) -> bool:
        """Whether callers can have principals."""
        return self.algorithm is not None or self.header is not None or self.trust_body


@dataclass(frozen=True)
class FeedbackSettings:
    """Settings of the feedback log.

    Attributes:
        path: Folder of the log. null disables logging and POST /feedback.
        queries: Whether to log the first 1,000 characters of each query, which learning needs. Otherwise, a keyed hash
            of the query is logged.
        trust_users: Whether to trust the ``user`` that a request names. Only for services whose clients are your own
            programs that authenticate their users, because other clients can invent any number of names.
        explore: Probability of swapping two adjacent results near the top, at most 0.5.
        days: Number of days after which events are deleted.
        max_bytes: Largest size of the log in bytes. Beyond it, the users with the most data lose their oldest events.

    Raises:
        ValueError: If a setting is invalid.
    """

    path: str | None = None
    queries: bool = False
    trust_users: bool = False
    explore: float = 0.0
    days: int = 30
    max_bytes: int = 268_435_456

    def __post_init__(self) -> None:
        check_counts(**{"feedback.days": self.days, "feedback.max_bytes": self.max_bytes})
        if not 0 <= self.explore <= 0.5:
            raise UserError(f"`feedback.explore` must be a probability of at most 0.5, got {self.explore}")
        if self.explore and self.path is None:
            raise UserError("`feedback.path` must be set if `feedback.explore` is above 0, got none")


@dataclass(frozen=True)
class PageSettings:
    """Content of the web page before the first request.

    Attributes:
        name: Name of the artifact.
        searches: Whether there is an indexed corpus to search.
        questions: Example questions.
        corpus: Name of the indexed corpus.
    """

    name: str
    searches: bool = False
    questions: Sequence[str] = ()
    corpus: str = ""


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
