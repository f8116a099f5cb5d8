"""Settings of a service."""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field

from graphrerank.checks import check_choice, check_counts
from graphrerank.serving.limits import Limits

HOSTS = ("127.0.0.1", "0.0.0.0", "::1", "::", "localhost")


@dataclass(frozen=True)
class PageSettings:
    """What the page on which people look at rankings knows of the service."""

    name: str  # of the artifact
    searches: bool = False  # whether there is an indexed corpus
    questions: Sequence[str] = ()  # to try


@dataclass(frozen=True)
class ServiceSettings:
    """Settings of a service; a ValueError if ``host`` is unknown, or a number is not positive."""

    host: str = "127.0.0.1"  # this machine only; 0.0.0.0 or :: for all networks
    port: int = 8000
    workers: int = 1  # processes, each of which reads requests and ranks
    batch_requests: int = 32  # ranked together; 1 for no batching
    batch_candidates: int = 4096  # documents at which a batch is full
    num_threads: int = 1  # torch threads of each process
    device: str = "cpu"  # or cuda
    api_key: str | None = None  # that clients must send; None or empty for none
    cors_origins: Sequence[str] = ()  # web pages that may call
    shutdown_seconds: int = 30  # to finish requests at the end
    encodes: bool = False  # whether the engines encode texts
    limits: Limits = field(default_factory=Limits)
    page: PageSettings | None = None  # the page at `/`

    def __post_init__(self) -> None:
        check_choice(HOSTS, host=self.host)
        counts = ("workers", "batch_requests", "batch_candidates", "num_threads")
        check_counts(**{name: getattr(self, name) for name in counts})

    @property
    def is_local(self) -> bool:
        """Whether only this machine is served."""
        return _is_loopback(self.host)


def check_exposure(host: str, api_key: str | None, *, allow_no_key: bool = False) -> None:
    """Refuse to serve other machines without a key.

    Args:
        host: Address that the service listens on.
        api_key: Key that clients must send; None or empty for none.
        allow_no_key: Whether to serve other machines without one all the same, as behind a proxy that asks for its own.

    Raises:
        ValueError: If ``host`` is reached from other machines, there is no key and ``allow_no_key`` is false.

    Example:
        >>> check_exposure("127.0.0.1", None)
        >>> check_exposure("0.0.0.0", "secret")
        >>> check_exposure("0.0.0.0", None)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ValueError: `api_key` must be set (GRAPHRERANK_API_KEY) where host=0.0.0.0 is reached from other machines, ...
    """
    if not (api_key or allow_no_key or _is_loopback(host)):
        raise ValueError(
            f"`api_key` must be set (GRAPHRERANK_API_KEY) where host={host} is reached from other machines, got none; "
            "behind a proxy that asks for a key of its own: allow_no_key=true"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
