"""Settings of a service."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from graphrerank.serving.auth import PermissionSettings
from graphrerank.serving.feedback_log import FeedbackSettings
from graphrerank.serving.limits import Limits
from graphrerank.utils.checks import UserError, check_choice, check_counts

LARGEST_PORT = 65535
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
HOSTS = (*LOCAL_HOSTS, "0.0.0.0", "::")


@dataclass(frozen=True)
class PageSettings:
    """What the page on which people look at rankings knows of the service."""

    name: str  # of the artifact
    searches: bool = False  # whether there is an indexed corpus
    questions: Sequence[str] = ()  # to try


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service; a ValueError if one does not fit, or other machines would be served without a key."""

    host: str = "127.0.0.1"  # this machine only; 0.0.0.0 or :: for all networks
    port: int = 8000
    workers: int = 2  # processes, each of which reads requests and ranks
    standby: int = 1  # further processes that have loaded everything and take the place of a worker that is gone
    batch_requests: int = 32  # ranked together; 1 for no batching
    batch_candidates: int = 4096  # documents at which a batch is full
    num_threads: int = 1  # torch threads of each process
    device: str = "cpu"  # or cuda
    api_key: str | None = None  # that clients must send; None or empty for none
    allow_no_key: bool = False  # serve other machines without a key, as behind a proxy that has one
    cors_origins: Sequence[str] = ()  # web pages that may call
    shutdown_seconds: int = 30  # to finish requests at the end
    limits: Limits = field(default_factory=Limits)
    permissions: PermissionSettings = field(default_factory=PermissionSettings)
    page: PageSettings | None = None  # the page at `/`
    feedback: FeedbackSettings = field(default_factory=FeedbackSettings)

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
