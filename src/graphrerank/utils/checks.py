"""Checks of arguments. Each raises a :class:`UserError` with the argument's name, the requirement and the value."""

import math
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any


class UserError(ValueError):
    """Error in an argument, a setting or a file. Commands show its message without a traceback."""


def check_counts(**counts: int | None) -> None:
    """Require positive integers.

    Args:
        **counts: Values by argument name. None is allowed.

    Raises:
        ValueError: If a value is not an integer of at least 1.
    """
    _check(counts, "be a positive integer", lambda n: isinstance(n, Integral) and int(n) >= 1, optional=True)


def check_positive(**numbers: float) -> None:
    """Require finite numbers above 0.

    Args:
        **numbers: Values by argument name.

    Raises:
        ValueError: If a value is not a finite number above 0.
    """
    _check(numbers, "be a finite number above 0", lambda number: 0 < number < math.inf)


def check_not_negative(**numbers: float) -> None:
    """Require non-negative numbers.

    Args:
        **numbers: Values by argument name.

    Raises:
        ValueError: If a value is not a number of at least 0.
    """
    _check(numbers, "not be negative", lambda number: number >= 0)


def check_share(**shares: float | None) -> None:
    """Require numbers in [0, 1].

    Args:
        **shares: Values by argument name. None is allowed.

    Raises:
        ValueError: If a value is not a number in [0, 1].
    """
    _check(shares, "lie in [0, 1]", lambda share: 0 <= share <= 1, optional=True)


def check_positive_share(**shares: float) -> None:
    """Require numbers in (0, 1].

    Args:
        **shares: Values by argument name.

    Raises:
        ValueError: If a value is not a number in (0, 1].
    """
    _check(shares, "lie in (0, 1]", lambda share: 0 < share <= 1)


def _check(
    arguments: Mapping[str, Any], requirement: str, fits: Callable[[Any], bool], *, optional: bool = False
) -> None:
    """Require numbers that satisfy a condition. Booleans and strings are refused."""
    for name, number in arguments.items():
        if optional and number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, Real) or not fits(number):
            raise UserError(f"`{name}` must {requirement}, got {number!r}")


def similar_name(name: str, names: Collection[str]) -> str | None:
    """Return the most similar of some names, for the message about a misspelt one.

    Args:
        name: Name that does not exist.
        names: Names that exist.

    Returns:
        Similar name. None if no name is similar.

    Example:
        >>> similar_name("checkpont", ["checkpoint", "seed"]), similar_name("x", ["seed"])
        ('checkpoint', None)
    """
    return next(iter(get_close_matches(name, names, n=1)), None)


def check_choice(choices: Collection[str], **chosen: str) -> None:
    """Require strings from a set of choices.

    Args:
        choices: Allowed strings.
        **chosen: Strings by argument name.

    Raises:
        ValueError: If a string is not in ``choices``.
    """
    for name, choice in chosen.items():
        if choice not in choices:
            raise UserError(f"`{name}` must be one of {list(choices)}, got {choice!r}")
