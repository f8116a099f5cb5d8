"""Metadata of passages, with values of all kinds."""

from typing import Any

RECORDS: list[dict[str, Any]] = [
    {"lang": "de", "year": 1999, "team": ["a", "b"], "date": "2025-01-31", "author": {"name": "Ada"}},
    {"lang": "en", "year": -3.5, "team": [], "date": "2024-12-31"},
    {"lang": "de", "year": True, "team": ["b", "c", 7]},
    {},
    {"lang": None, "year": 0, "date": "2025-01", "\0odd": "x\0y"},
]
