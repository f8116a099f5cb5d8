"""Logs as JSON lines on standard error, without any content of requests."""

import json
import logging
import logging.config
import sys
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

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


def log_config(level: str = "INFO") -> dict[str, Any]:
    """Return a configuration for ``logging.config.dictConfig``: our and uvicorn's loggers."""
    logger = {"handlers": ["json"], "level": level, "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"json": {"()": JsonFormatter}},
        "handlers": {
            "json": {"class": "logging.StreamHandler", "formatter": "json", "stream": sys.stderr, "level": level}
        },
        "loggers": dict.fromkeys((LOGGER, "uvicorn", "uvicorn.error", "fastapi"), logger),
        "root": {"handlers": ["json"], "level": "WARNING"},
    }


def start_logging() -> None:
    """Configure this process to log as JSON."""
    logging.config.dictConfig(log_config())


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with fields."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in traceback.extract_tb(trace)][-5:]
