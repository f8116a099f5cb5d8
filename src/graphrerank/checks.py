"""Checks of arguments; each raises a UserError that names the argument, the requirement and the value."""

import math
from collections.abc import Collection
from numbers import Integral


class UserError(ValueError):
    """An argument, a setting or a file does not fit; commands show the message without a traceback."""


def check_counts(**counts: int | None) -> None:
    """Require positive integers; None passes."""
    for name, count in counts.items():
        if count is not None and (isinstance(count, bool) or not isinstance(count, Integral) or count < 1):
            raise UserError(f"`{name}` must be a positive integer, got {count!r}")


def check_positive(**numbers: float) -> None:
    """Require finite numbers above 0."""
    for name, number in numbers.items():
        if not 0 < number < math.inf:
            raise UserError(f"`{name}` must be a finite number above 0, got {number}")


def check_not_negative(**numbers: float) -> None:
    """Require numbers of at least 0."""
    for name, number in numbers.items():
        if not number >= 0:
            raise UserError(f"`{name}` must not be negative, got {number}")


def check_share(**shares: float | None) -> None:
    """Require numbers in [0, 1]; None passes."""
    for name, share in shares.items():
        if share is not None and not 0 <= share <= 1:
            raise UserError(f"`{name}` must lie in [0, 1], got {share}")


def check_positive_share(**shares: float) -> None:
    """Require numbers in (0, 1]."""
    for name, share in shares.items():
        if not 0 < share <= 1:
            raise UserError(f"`{name}` must lie in (0, 1], got {share}")


def check_choice(choices: Collection[str], **chosen: str) -> None:
    """Require strings that are among the choices."""
    for name, choice in chosen.items():
        if choice not in choices:
            raise UserError(f"`{name}` must be one of {list(choices)}, got {choice!r}")
