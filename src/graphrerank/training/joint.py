"""Distributed training, in which several processes share each batch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# environment variables that Lightning's launcher sets
LAUNCHED = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


@contextmanager
def shared_processes() -> Iterator[None]:
    """Share one process group between all training runs of a ``with`` block, and destroy the group at its end.

    The first distributed training of the block starts the processes; the following ones reuse them. Lightning leaves
    the address of the group in environment variables, through which a later training would try to reach processes that
    no longer exist. The variables are therefore restored. A block that trains on one device is not affected.

    Returns:
        Context manager without a value.

    Example:
        >>> with shared_processes():
        ...     pass  # reranker = fit(data, trainer={"devices": 2, "strategy": "ddp"})
    """
    environment = {name: os.environ.get(name) for name in LAUNCHED}
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))  # otherwise Lightning chooses a number
    try:
        yield
        wait_for_all()  # no process may exit while another still receives data from it
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for name, setting in environment.items():
            os.environ.pop(name, None)
            if setting is not None:
                os.environ[name] = setting


def wait_for_all() -> None:
    """Wait until all processes of a distributed training run reach this call. Return at once in others."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
