"""Steps of a long job: each leaves a JSON file when it is done, so that a stopped run resumes where it was.

The file's name holds a hash of the step's configuration and data: a changed setting repeats the steps that it concerns.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphrerank.files import hash_json, write_text


def step_file(run_dir: Path, name: str, decisive: Any) -> Path:
    """Return the file of a step called ``name``; ``decisive`` is all that decides its result, as JSON can write it."""
    return run_dir / "steps" / f"{slug(name)}-{hash_json(decisive)}.json"


def do_step(file: Path, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Read the result of a step, or compute it and write it."""
    if not file.is_file():
        write_text(file, json.dumps(compute()) + "\n")
    return read_step(file)


def read_step(file: Path) -> dict[str, Any]:
    """Read the result of a step; a damaged file is a ValueError that says to delete it."""
    try:
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: damaged step ({error}); delete this file and run again") from error
    return result


def slug(name: str) -> str:
    """Write a name so that it can be a file's.

    Example:
        >>> slug("GATv2 scores, loss bce")
        'gatv2-scores-loss-bce'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
