"""Right answers in the metadata of queries."""

from collections.abc import Mapping
from typing import Any

KEYS = ("answer", "answer_aliases")
ANSWERABLE = "answerable"


def right_answers(metadata: Mapping[str, Any]) -> list[str]:
    """List the right answers in a query's metadata: ``answer`` and ``answer_aliases``, each one or a list of them.

    An answer is a text, a number, or true or false, which are "yes" and "no"; blank ones and null are none. There is
    none at all where ``answerable`` is false, whatever else the metadata say.

    Raises:
        ValueError: If an answer is of another kind, or ``answerable`` is neither true nor false; names the key.

    Example:
        >>> right_answers({"answer": "Detroit", "answer_aliases": ["Detroit", "Motor City"]})
        ['Detroit', 'Motor City']
        >>> right_answers({"answer": 0}), right_answers({"answer": True})
        (['0'], ['yes'])
    """
    answerable = metadata.get(ANSWERABLE)
    if answerable is not None and not isinstance(answerable, bool):
        raise ValueError(f"true or false as `{ANSWERABLE}`")
    texts = [text for key in KEYS for text in _texts(key, metadata.get(key))]
    return [] if answerable is False else list(dict.fromkeys(text for text in texts if text.strip()))


def _texts(key: str, entry: Any) -> list[str]:
    if isinstance(entry, list):
        return [text for part in entry for text in _texts(key, part)]
    if entry is None:
        return []
    if isinstance(entry, bool):
        return ["yes" if entry else "no"]
    if isinstance(entry, str | int | float):
        return [str(entry)]
    raise ValueError(f"a text, a number, true or false, or a list of them as `{key}`")
