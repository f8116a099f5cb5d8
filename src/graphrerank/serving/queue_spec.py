"""The way of a request from an HTTP process through LitServe's queue to a worker and back."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from litserve import LitServer
from litserve.specs.base import LitSpec
from litserve.utils import ResponseBufferItem

from graphrerank.serving.batch_loop import ANSWERS, STARTED
from graphrerank.serving.engine import Answer
from graphrerank.serving.limits import Limits

NUM_MAILBOXES = 2
ATTEMPTS = 2  # of a request whose worker may have died with it: an answer does not depend on how often it is computed


class QueueSpec(LitSpec):
    """Puts requests into the queue and waits for their answers.

    LitServe restarts a worker that died, and never answers what it held. Here each worker says when it starts; what is
    still without an answer then is put into the queue again, once.

    Args:
        limits: How long a request may take, and how many may wait.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__()
        self.api_path = "/v1/rerank"  # names LitServe's queue
        self.limits = limits

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what workers have no use for and cannot take."""
        return {**super().__getstate__(), "response_buffer": None}

    def setup(self, server: LitServer) -> None:
        """Connect with LitServe's queue and buffer of answers."""
        super().setup(server)
        started: set[int] = set()

        def give(answers: Mapping[str, Answer]) -> None:
            for uid, answer in answers.items():
                if (item := self.response_buffer.get(uid)) is not None:  # else it took too long
                    item.response = answer
                    item.event.set()

        def wake_all_after_another(worker: int) -> None:
            if worker in started:
                for item in self.response_buffer.values():
                    item.event.set()
            started.add(worker)

        self.response_buffer[ANSWERS] = _Mailbox(give)
        self.response_buffer[STARTED] = _Mailbox(wake_all_after_another)

    async def ask(self, kind: str, request: Any, uid: str) -> Answer:
        """Have a request answered by a worker.

        Args:
            kind: Name of the engine.
            request: What the engine takes.
            uid: The request's id.

        Returns:
            The answer; 429 where too many wait, 503 where workers died with it, 504 where it took too long.
        """
        if len(self.response_buffer) - NUM_MAILBOXES >= self.limits.waiting:
            return Answer.refuse(429, f"too many requests: {self.limits.waiting} are waiting; try again later")
        item = self.response_buffer[uid] = ResponseBufferItem(event=asyncio.Event())
        try:
            async with asyncio.timeout(self.limits.request_seconds):
                for _ in range(ATTEMPTS):
                    item.event.clear()
                    self.request_queue.put((self.response_queue_id, uid, time.monotonic(), (kind, request)))
                    await item.event.wait()
                    if item.response is not None:
                        answer: Answer = item.response
                        return answer
        except TimeoutError:
            return Answer.refuse(504, f"no answer within {self.limits.request_seconds:g} seconds")
        finally:
            del self.response_buffer[uid]
        return Answer.refuse(503, "workers died with this request; try again later")


class _Mailbox:
    """Stands among the requests that wait, for what workers send to all of them together.

    Args:
        take: Is given each message.
    """

    def __init__(self, take: Callable[[Any], None]) -> None:
        self.event = asyncio.Event()  # LitServe sets it
        self.worker_id = None  # LitServe looks at it
        self._take = take

    @property
    def response(self) -> None:
        """Nothing: what comes is dealt with at once."""

    @response.setter
    def response(self, message: Sequence[Any]) -> None:
        self._take(message[0])
