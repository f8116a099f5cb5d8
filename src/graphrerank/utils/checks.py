"""Checks of arguments; each raises a UserError that names the argument, the requirement and the value."""

import math
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from typing import Any


class UserError(ValueError):
    """An argument, a setting or a file does not fit; commands show the message without a traceback."""


def check_counts(**counts: int | None) -> None:
    """Require positive integers; None passes."""
    _check(counts, "be a positive integer", lambda n: isinstance(n, Integral) and int(n) >= 1, optional=True)


def check_positive(**numbers: float) -> None:
    """Require finite numbers above 0."""
    _check(numbers, "be a finite number above 0", lambda number: 0 < number < math.inf)


def check_not_negative(**numbers: float) -> None:
    """Require numbers of at least 0."""
    _check(numbers, "not be negative", lambda number: number >= 0)


def check_share(**shares: float | None) -> None:
    """Require numbers in [0, 1]; None passes."""
    _check(shares, "lie in [0, 1]", lambda share: 0 <= share <= 1, optional=True)


def check_positive_share(**shares: float) -> None:
    """Require numbers in (0, 1]."""
    _check(shares, "lie in (0, 1]", lambda share: 0 < share <= 1)


def _check(
    arguments: Mapping[str, Any], requirement: str, fits: Callable[[Any], bool], *, optional: bool = False
) -> None:
    """Require numbers, neither texts nor booleans, that fit."""
    for name, number in arguments.items():
        if optional and number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, Real) or not fits(number):
            raise UserError(f"`{name}` must {requirement}, got {number!r}")


def check_choice(choices: Collection[str], **chosen: str) -> None:
    """Require strings that are among the choices."""
    for name, choice in chosen.items():
        if choice not in choices:
            raise UserError(f"`{name}` must be one of {list(choices)}, got {choice!r}")
