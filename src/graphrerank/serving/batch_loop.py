"""The loop of a worker, which answers the batches of the HTTP processes."""

import selectors
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from litserve import LitAPI
from litserve.loops.base import LitLoop

from graphrerank.serving.engine import Answer, Engine, answer_all
from graphrerank.serving.messages import connect, pack, receive
from graphrerank.serving.metrics import metrics

Batch = tuple[str, Sequence[tuple[str, float, Any]]]  # kind; id, arrival time and content of each request


class BatchLoop(LitLoop):
    """Answers requests of several kinds by their engines, the api's ``engines``.

    LitServe's own loop waits a fixed time for a batch to fill, polls the queue a thousand times a second, fails a whole
    batch with one of its requests, and sends each answer separately. Here a batch is one message, and so are its
    answers.

    Attributes:
        addresses: Sockets of the HTTP processes, set at the start of the service.
    """

    addresses: Sequence[Path] = ()

    def __call__(self, lit_api: LitAPI, *_: Any, **__: Any) -> None:
        """Run until the HTTP processes are gone; the arguments are LitServe's."""
        metrics().restarts.inc()
        with ExitStack() as open_connections, selectors.DefaultSelector() as connected:
            for address in self.addresses:
                connected.register(open_connections.enter_context(connect(address)), selectors.EVENT_READ)
            while connected.get_map():
                for key, _events in connected.select():
                    connection: Any = key.fileobj
                    try:
                        connection.sendall(pack(self.work(lit_api.engines, receive(connection))))
                    except (EOFError, ConnectionError):
                        connected.unregister(connection)

    def work(self, engines: Mapping[str, Engine[Any]], batch: Batch) -> dict[str, Answer]:
        """Answer each request of a batch, by id."""
        kind, requests = batch
        now = time.monotonic()
        metrics().batch_requests.observe(len(requests))
        for _, arrival, _ in requests:
            metrics().stage_seconds.labels("queue").observe(now - arrival)
        return answer_all(engines[kind], {uid: request for uid, _, request in requests})
