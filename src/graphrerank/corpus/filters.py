"""Metadata filters, which are evaluated with an inverted index.

A filter is a mapping from fields to conditions, all of which must be met. The operators are those of Qdrant and
LanceDB:

- ``{"lang": "de"}`` or ``{"lang": {"eq": "de"}}``: equality. A list of values is equal if one of its members is.
- ``{"team": ["a", "b"]}`` or ``{"team": {"in": ["a", "b"]}}``: equality to one of several values.
- ``{"lang": {"ne": "de"}}``: no member is equal. A passage without the field matches, too.
- ``{"date": {"gte": "2025-01-01", "lt": "2026"}}``: range of numbers or texts, with ``gt``, ``gte``, ``lt`` and
  ``lte``.
- ``{"date": {"exists": false}}``: whether the passage has the field.
- ``{"or": [{...}, {...}]}``, ``{"and": [...]}`` and ``{"not": {...}}``: combinations of filters.

A field of nested metadata is written with dots, such as ``author.name``.

The fields ``valid_from`` and ``valid_to`` are times in ISO 8601, and are compared as instants, however they are written
(see :mod:`~graphrerank.corpus.times`). Texts of other fields are compared by their characters.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from graphrerank.corpus.metadata_fields import RESERVED, TIMES
from graphrerank.corpus.metadata_index import (
    Mask,
    MetadataIndex,
    all_of_field,
    encode_value_of,
    entries_between,
    entry_of,
    kind_of,
)
from graphrerank.corpus.permissions import SHOWN_CHARS
from graphrerank.corpus.times import TIME_FORMS
from graphrerank.utils.checks import UserError

Filter = Mapping[str, Any]
RANGES = ("gt", "gte", "lt", "lte")
OPERATORS = ("eq", "ne", "in", *RANGES, "exists")
BOTH, EITHER, NEITHER = "and", "or", "not"
#: Largest number of conditions in a filter, because each condition is evaluated for all passages.
MAX_CONDITIONS = 64
#: Largest number of values in all ``in`` conditions of a filter.
MAX_CHOICES = 10_000
#: Largest number of field names in an error.
SHOWN_FIELDS = 50


def passing(conditions: Filter, index: MetadataIndex) -> Mask:
    """Return the passages that match a filter.

    Args:
        conditions: Filter that :func:`check_filter` accepts.
        index: Index of the metadata of ``N`` passages.

    Returns:
        Mask ``[N]``.

    Raises:
        UserError: If no passage has one of the fields, or a field is reserved.
    """
    mask = np.ones(index.num_passages, dtype=bool)
    for name, condition in conditions.items():
        if name in (BOTH, EITHER):
            combine = np.logical_and if name == BOTH else np.logical_or
            mask &= reduce(combine, (passing(operand, index) for operand in condition))
        elif name == NEITHER:
            mask &= ~passing(condition, index)
        else:
            mask &= _meeting(name, condition, index)
    return mask


def filterable_fields(index: MetadataIndex) -> list[str]:
    """Return the sorted names of the fields that occur and that filters may use.

    Args:
        index: Index of the metadata.
    """
    return [name for name in index.fields() if name not in RESERVED]


def _meeting(name: str, condition: Any, index: MetadataIndex) -> Mask:
    """Return the passages that meet the condition on one field."""
    present = index.mask(all_of_field(name))
    if name in RESERVED or not present.any():
        shown = filterable_fields(index)[:SHOWN_FIELDS]
        raise UserError(f"`filter.{name[:SHOWN_CHARS]}` must be a field of the passages. The known fields are {shown}")
    mask, bounds = np.ones(index.num_passages, dtype=bool), dict[str, Any]()
    for operator, value in _operators(condition).items():
        if operator in RANGES:
            bounds[operator] = value
        elif operator == "exists":
            mask &= present == value
        else:
            equal = index.mask(*(entry_of(name, choice) for choice in (value if operator == "in" else [value])))
            mask &= ~equal if operator == "ne" else equal
    return mask & index.mask(entries_between(name, bounds)) if bounds else mask


def check_filter(
    conditions: Any, *, path: str = "filter", most: int = MAX_CONDITIONS, count: list[int] | None = None
) -> None:
    """Check that a value is a filter.

    Args:
        conditions: Value to check.
        path: Name of the value in errors.
        most: Largest number of conditions. Every ``MAX_CHOICES / MAX_CONDITIONS`` values of ``in`` count as one
            condition.
        count: List with the number of conditions so far, which is increased. Used for nested filters.

    Raises:
        UserError: If the value is not a filter. The message contains the name of the invalid field.
    """
    count = [0] if count is None else count
    if not isinstance(conditions, Mapping) or not all(isinstance(name, str) for name in conditions):
        raise UserError(f"`{path}` must be a mapping from fields to conditions")
    for name, condition in conditions.items():
        count[0] += 1
        field_path = f"{path}.{name[:SHOWN_CHARS]}"
        if name in (BOTH, EITHER):
            if not isinstance(condition, list | tuple) or not condition:
                raise UserError(f"`{field_path}` must be a list of at least one filter")
            for operand in condition:
                check_filter(operand, path=field_path, most=most, count=count)
        elif name == NEITHER:
            check_filter(condition, path=field_path, most=most, count=count)
        else:
            operators = _operators(condition)
            _check_condition(name, field_path, operators)
            count[0] += MAX_CONDITIONS * len(operators.get("in", ())) // MAX_CHOICES
        if count[0] > most:
            choices = MAX_CHOICES // MAX_CONDITIONS
            raise UserError(
                f"`filter` must have at most {most} conditions, where every {choices} values of `in` count as one"
            )


def _check_condition(name: str, path: str, operators: Mapping[str, Any]) -> None:
    if not operators:
        raise UserError(f"`{path}` must have an operator, one of {OPERATORS}")
    for operator, value in operators.items():
        if operator not in OPERATORS:
            raise UserError(f"`{path}` must only use the operators {OPERATORS}, got {str(operator)[:SHOWN_CHARS]!r}")
        if operator == "exists" and not isinstance(value, bool):
            raise UserError(f"`{path}.exists` must be true or false")
        if operator == "in" and not (isinstance(value, list | tuple) and len(value) <= MAX_CHOICES):
            raise UserError(f"`{path}.in` must be a list of at most {MAX_CHOICES} texts, numbers or Boolean values")
        for choice in value if operator == "in" else [value]:
            if operator != "exists" and encode_value_of(name, choice) is None:
                needed = TIME_FORMS if name in TIMES else "a text, a finite number or a Boolean value"
                raise UserError(f"`{path}.{operator}` must be {needed}")
    kinds = {kind_of(name, value) for operator, value in operators.items() if operator in RANGES}
    if len(kinds) > 1 or "b" in kinds:
        raise UserError(f"`{path}` must be a range of numbers, or of texts")


def _operators(condition: Any) -> Mapping[str, Any]:
    if isinstance(condition, Mapping):
        return condition
    return {"in": condition} if isinstance(condition, list | tuple) else {"eq": condition}
