"""Training by several processes that share each batch."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

# what Lightning's launcher sets
LAUNCHED = ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")


@contextmanager
def shared_processes() -> Iterator[None]:
    """Let the trainers of a block share the processes that the first of them starts; end the group with the block.

    Lightning leaves the address of the group in the environment, where a later training would look for processes that
    have ended. The environment is therefore restored. Nothing happens in a block that trains on one device.

    Example:
        >>> with shared_processes():
        ...     pass  # reranker = fit(data, trainer={"devices": 2, "strategy": "ddp"})
    """
    environment = {name: os.environ.get(name) for name in LAUNCHED}
    os.environ.setdefault("OMP_NUM_THREADS", str(torch.get_num_threads()))  # else Lightning chooses a number
    try:
        yield
        wait_for_all()  # no process leaves while another still reads from it
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        for name, setting in environment.items():
            os.environ.pop(name, None)
            if setting is not None:
                os.environ[name] = setting


def wait_for_all() -> None:
    """Wait until all processes of the training are here; a process that trains alone does not wait."""
    if dist.is_available() and dist.is_initialized():
        dist.barrier()
