"""Logs as JSON lines on standard error, without any content of requests."""

import contextlib
import io
import json
import logging
import logging.config
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, TextIO

LOGGER = "graphrerank.serving"


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object; of an exception its type and place, as its message may contain texts."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line |= {"error": record.exc_info[0].__name__, "at": _frames(record.exc_info[2])}
        return json.dumps(line)


class LossyStream(io.TextIOBase):
    """A stream that drops what cannot be written, as where the disk of the log is full.

    Libraries write to standard error when they load a model; a process must not end because of it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text, or drop it."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush the stream, as far as it goes."""
        with contextlib.suppress(OSError):
            self._stream.flush()

    def fileno(self) -> int:
        """Return the stream's descriptor."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        return self._stream.isatty()


def log_config(level: str = "INFO") -> dict[str, Any]:
    """Return a configuration for ``logging.config.dictConfig``: our and uvicorn's loggers."""
    logger = {"handlers": ["json"], "level": level, "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {
            "json": {
                "class": "logging.StreamHandler",
                "formatter": "json",
                "stream": "ext://sys.stderr",
                "level": level,
            }
        },
        "loggers": {
            **dict.fromkeys((LOGGER, "uvicorn", "uvicorn.error", "fastapi"), logger),
            "uvicorn.access": {"handlers": [], "propagate": False},  # each request is logged with its id
        },
        "root": {"handlers": ["json"], "level": "WARNING"},
    }


def start_logging() -> None:
    """Configure this process to log as JSON, and to go on where the log's disk is full."""
    if not isinstance(sys.stderr, LossyStream):
        sys.stderr = LossyStream(sys.stderr)
    logging.config.dictConfig(log_config())


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with fields."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(trace)][-5:]
