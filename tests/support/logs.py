"""Waiting for what other threads log, so that no test looks again and again."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from graphrerank.serving.json_log import LOGGER

PATIENCE_S = 120.0


class _Awaited(logging.Handler):
    """Sets an event when a line with a message and some fields is logged."""

    def __init__(self, message: str, fields: dict[str, Any]) -> None:
        super().__init__()
        self._message, self._fields = message, fields
        self.has_come = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        given = record.__dict__.get("fields", {})
        if record.getMessage() == self._message and given.items() >= self._fields.items():
            self.has_come.set()


@contextmanager
def awaited_line(message: str, **fields: Any) -> Iterator[None]:
    """Run a block, then wait until the service has logged a line since the beginning of the block.

    Args:
        message: Message of the line.
        **fields: Fields that the line must have.
    """
    handler, logger = _Awaited(message, fields), logging.getLogger(LOGGER)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
        assert handler.has_come.wait(PATIENCE_S), f"{message!r} was not logged"
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
