"""Connection to a Ray cluster."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError


@contextmanager
def ray_cluster(
    what: str, *, num_cpus: int | None, address: str | None = None, log_to_driver: bool = True
) -> Iterator[Any]:
    """Connect to a Ray cluster, and disconnect at the end of a ``with`` block.

    A connection that the process already has is used and stays open.

    Args:
        what: Setting that needs the cluster, for messages, such as ``engine=ray``.
        num_cpus: Number of processors of a cluster that is started on this machine. If None, all processors.
        address: Address of a running cluster, or ``auto`` for the cluster on this machine. If None, a cluster is
            started on this machine and stopped at the end of the block.
        log_to_driver: Whether this process prints the output of the workers.

    Yields:
        The module ``ray``.

    Raises:
        MissingExtraError: If Ray is not installed.
        UserError: If the cluster cannot be started or reached.
    """
    ray = optional("ray", what)
    if ray.is_initialized():
        yield ray
        return
    local_options = {} if address else {"num_cpus": num_cpus, "include_dashboard": False}
    try:
        ray.init(address=address or "local", log_to_driver=log_to_driver, logging_level="WARNING", **local_options)
    except Exception as error:  # Ray raises a plain Exception if a node does not start in time
        raise UserError(
            f"{what} could not {'reach the Ray cluster ' + address if address else 'start a Ray cluster'}: {error}. On "
            "a busy machine, start a cluster with `ray start --head` and use the address auto"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
