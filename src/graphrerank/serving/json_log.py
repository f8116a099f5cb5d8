"""Logs as JSON lines on standard error, without any content of requests."""

import json
import logging
import traceback
from datetime import UTC, datetime
from typing import Any

LOGGER = "graphrerank.serving"


class JsonFormatter(logging.Formatter):
    """Writes a record as a JSON object; of an exception its type and location, as its message may contain texts."""

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
            frames = traceback.extract_tb(record.exc_info[2])[-5:]
            places = [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]
            line |= {"error": record.exc_info[0].__name__, "at": places}
        return json.dumps(line)


_JSON = {"handlers": ["json"], "level": "INFO", "propagate": False}
LOG_CONFIG = {  # of `logging.config.dictConfig`, for our loggers and uvicorn's
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"json": {"()": JsonFormatter}},
    "handlers": {"json": {"class": "logging.StreamHandler", "formatter": "json", "stream": "ext://sys.stderr"}},
    "loggers": {
        **dict.fromkeys((LOGGER, "uvicorn", "uvicorn.error", "fastapi"), _JSON),
        "graphrerank": {"handlers": [], "level": "WARNING"},  # in place of a command's handler; the root's writes JSON
        "uvicorn.access": {"handlers": [], "propagate": False},  # each request is logged with its id
    },
    "root": {"handlers": ["json"], "level": "WARNING"},
}


def log(event: str, *, level: int = logging.INFO, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with fields."""
    logging.getLogger(LOGGER).log(level, event, extra={"fields": fields}, exc_info=error)
