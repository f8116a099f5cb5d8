"""What evaluate.py leaves in a run folder as JSON of a numbered format, read back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Content = TypeVar("Content")


def read_run_json(path: Path, *, what: str, form: int, build: Callable[[Any], Content]) -> Content:
    """Read a file of a run folder.

    Args:
        path: The file.
        what: What it holds, for errors.
        form: Its ``format`` must be this one.
        build: Makes it of the JSON.

    Raises:
        ValueError: If there is none, or it is damaged or of another format.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file; needed the folder of a finished run of evaluate.py")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != form:
            raise ValueError(f"needed format {form}, found {content['format']!r}")
        return build(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a {what} that can be read ({error!r})") from error
