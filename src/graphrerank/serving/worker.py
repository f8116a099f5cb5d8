"""A worker process, which answers the batches of the HTTP processes."""

import ctypes
import gc
import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from graphrerank.serving.engine import TOO_LATE, Engine, EngineFactory, answer_all
from graphrerank.serving.messages import connect, pack, receive
from graphrerank.serving.metrics import metrics

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
Batch = tuple[str, Sequence[tuple[str, float, float, Any]]]  # kind; id, arrival, deadline and job of each request


def load_engines(factories: Mapping[str, EngineFactory], *, device: str, num_threads: int) -> dict[str, Engine[Any]]:
    """Build the engines of a worker and warm them up.

    Raises:
        ValueError: If an engine cannot be built.
    """
    torch.set_num_threads(num_threads)
    _keep_freed_memory()
    engines = {kind: make(device) for kind, make in factories.items()}
    for engine in engines.values():
        engine.warm_up()
    gc.collect()
    gc.freeze()  # modules and models stay, so the garbage collector may ignore them
    return engines


def answer_batches(
    engines: Mapping[str, Engine[Any]], addresses: Sequence[Path], *, is_ending: Callable[[], bool]
) -> None:
    """Answer the HTTP processes at some sockets until the service ends and all of them are gone.

    An HTTP process that died is replaced at the same socket, so that the worker connects anew.
    """
    metrics().restarts.inc()
    with ExitStack() as open_connections, selectors.DefaultSelector() as connected:

        def join(address: Path) -> None:
            connection = open_connections.enter_context(connect(address))
            connection.sendall(pack(os.getpid()))
            connected.register(connection, selectors.EVENT_READ, address)

        for address in addresses:
            join(address)
        while connected.get_map():
            for key, _events in connected.select():
                connection: Any = key.fileobj
                try:
                    connection.sendall(pack(work(engines, receive(connection))))
                except (EOFError, ConnectionError):
                    connected.unregister(connection)
                    connection.close()
                    try:
                        if not is_ending():
                            join(key.data)
                    except ConnectionError:  # nobody listens any longer
                        pass


def work(engines: Mapping[str, Engine[Any]], batch: Batch) -> tuple[float, dict[str, Any]]:
    """Return the seconds that a batch took, and the result of each of its requests, by id."""
    kind, requests = batch
    now = time.monotonic()
    metrics().batch_requests.observe(len(requests))
    for _, arrival, _, _ in requests:
        metrics().stage_seconds.labels("queue").observe(now - arrival)
    last = max(deadline for _, _, deadline, _ in requests)

    def check() -> None:
        if time.monotonic() > last:
            raise TimeoutError

    results: dict[str, Any] = {uid: TOO_LATE for uid, _, deadline, _ in requests if deadline <= now}
    jobs = {uid: job for uid, _, deadline, job in requests if deadline > now}
    if jobs:
        results |= answer_all(engines[kind], jobs, check)
    return time.monotonic() - now, results


def _keep_freed_memory() -> None:
    """Let glibc keep freed memory, up to 32 MiB per block.

    A batch's tensors have a few MiB each; returning them to the system and requesting them again costs more than the
    arithmetic.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 32 << 20)
        mallopt(M_TRIM_THRESHOLD, 512 << 20)
