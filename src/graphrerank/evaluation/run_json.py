"""JSON files of a numbered format in a run folder, read back."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, TypeVar

from graphrerank.metrics import parse_measure
from graphrerank.untrusted import MAX_LARGE_BYTES, file_of, read_json

RETRIEVER = "retriever"  # the row of the candidates as their retriever ranked them
TEXTS = ("query_ids", "query_texts", "query_id", "query_text", "missing", "source", "command")  # hold no names of rows

Content = TypeVar("Content")


def read_run_json(path: Path, *, what: str, forms: Collection[int], build: Callable[[Any], Content]) -> Content:
    """Read a JSON file of one of the formats ``forms``; a ValueError if it is missing or damaged."""
    if not path.is_file():
        raise ValueError(f"{path}: no such file; needed the folder of a finished run of evaluate.py")
    try:
        content = read_json(file_of(path.parent, path.name), max_bytes=MAX_LARGE_BYTES)
        if content["format"] not in forms:
            raise ValueError(f"needed format {' or '.join(map(str, forms))}, found {content['format']!r}")
        return build(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a {what} that can be read ({error!r})") from error


def with_new_names(content: Any) -> Any:
    """Rename the rows and measures of an older file to the current names: ``base_ranking``, ``R_cap@K``.

    Example:
        >>> with_new_names({"base_ranking": {"R_cap@5": 0.5}})
        {'retriever': {'CR@5': 0.5}}
    """
    if isinstance(content, dict):
        return {_new_name(key): entry if key in TEXTS else with_new_names(entry) for key, entry in content.items()}
    if isinstance(content, list):
        return [with_new_names(entry) for entry in content]
    return _new_name(content) if isinstance(content, str) else content


def _new_name(name: str) -> str:
    if name.startswith("R_cap@"):
        return parse_measure(name).name
    return RETRIEVER if name == "base_ranking" else name
