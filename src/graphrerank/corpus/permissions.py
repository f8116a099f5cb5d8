"""Metadata field with the principals who may see a passage, and detection of fields that are mistaken for it."""

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

#: Metadata field with the principals who may see a passage. A passage without it is public.
PRINCIPALS = "principals"
#: Largest number of characters of a field name in an error.
SHOWN_CHARS = 40


def misplaced_principals(fields: Any) -> str | None:
    """Return the path of the first field whose name looks like misspelt or misplaced principals.

    Args:
        fields: Mappings and lists of any depth.

    Returns:
        Names from the outermost field to the suspect one, joined by dots. None if there is no such field.

    Example:
        >>> misplaced_principals({"lang": "en", "access": [{"Principals": ["hr"]}]})
        'access.Principals'
    """
    if isinstance(fields, Mapping):
        for key, value in fields.items():
            if resembles_principals(str(key)):
                return str(key)[:SHOWN_CHARS]
            if (path := misplaced_principals(value)) is not None:
                return f"{str(key)[:SHOWN_CHARS]}.{path}"
    elif isinstance(fields, list | tuple):
        return next((path for path in map(misplaced_principals, fields) if path is not None), None)
    return None


@lru_cache(maxsize=4096)
def resembles_principals(name: str) -> bool:
    """Return whether a name is `principals`, contains it, or is within one edit of it or its singular.

    Case, blanks and punctuation do not matter. An edit adds, drops or replaces a letter or exchanges two neighbours, so
    that "principles", another word, does not resemble it.

    Args:
        name: Name of a field or a column.

    Example:
        >>> [resembles_principals(name) for name in ("Principals", "prinicpal", "allowed_principals", "principles")]
        [True, True, True, False]
    """
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", name[:100]).casefold()))
    singular = PRINCIPALS[:-1]
    return PRINCIPALS in letters or _within_one_edit(letters, PRINCIPALS) or _within_one_edit(letters, singular)


def _within_one_edit(one: str, other: str) -> bool:
    while one and other and one[0] == other[0]:
        one, other = one[1:], other[1:]
    while one and other and one[-1] == other[-1]:
        one, other = one[:-1], other[:-1]
    return max(len(one), len(other)) <= 1 or (len(one) == len(other) == 2 and one == other[::-1])
