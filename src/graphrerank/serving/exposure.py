"""Who can reach the service: without a key it answers this machine alone."""

import ipaddress


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
