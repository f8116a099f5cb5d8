"""Log JSON lines to standard error, without any content of requests."""

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGER = "graphrerank.serving"


class JsonFormatter(logging.Formatter):
    """Formats log records as JSON objects. For exceptions, only type and location are logged, not the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a log record as one line of JSON.

        Args:
            record: Record to format.
        """
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            frames = traceback.extract_tb(record.exc_info[2])[-5:]
            locations = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]
            line |= {"error": record.exc_info[0].__name__, "at": locations}
        return json.dumps(line)


_JSON = {"handlers": ["json"], "level": "INFO", "propagate": False}
LOG_CONFIG = {  # argument of `logging.config.dictConfig` for the loggers of this library and of uvicorn
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonFormatter}},
    "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {
        **dict.fromkeys((LOGGER, "uvicorn", "uvicorn.error", "fastapi"), _JSON),
        "graphrerank": {"handlers": [], "level": "WARNING"},  # removes a command's handler; the root logger writes JSON
        "uvicorn.access": {"handlers": [], "propagate": False},  # HttpGuard logs each request with its id instead
    },
    "root": {"handlers": ["json"], "level": "WARNING"},
}


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event.

    Args:
        event: Name of the event.
        level: Level of the event, as in :mod:`logging`.
        error: Exception whose type and location are logged. If None, there is none.
        **fields: Additional fields of the JSON object.
    """
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)
