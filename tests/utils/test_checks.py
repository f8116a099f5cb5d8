import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphrerank.utils.checks import (
    check_choice,
    check_counts,
    check_not_negative,
    check_positive,
    check_positive_share,
    check_share,
)


@pytest.mark.parametrize(
    ("check", "good", "bad", "message"),
    [
        (check_positive, 0.1, 0.0, "be a finite number above 0, got 0.0"),
        (check_positive, 1, float("inf"), "be a finite number above 0, got inf"),
        (check_counts, None, 0, "be a positive integer, got 0"),
        (check_counts, np.int64(1), 1.5, "be a positive integer, got 1.5"),
        (check_share, 0.0, 1.1, "lie in [0, 1], got 1.1"),
        (check_share, None, "0.5", "lie in [0, 1], got '0.5'"),
        (check_positive, 1e-9, True, "be a finite number above 0, got True"),
        (check_positive_share, 1.0, 0.0, "lie in (0, 1], got 0.0"),
        (check_not_negative, 0, float("nan"), "not be negative, got nan"),
    ],
)
def test_a_number_out_of_range_is_named(check: Callable[..., None], good: Any, bad: Any, message: str) -> None:
    check(setting=good)
    with pytest.raises(ValueError, match=f"`setting` must {re.escape(message)}"):
        check(setting=bad)


def test_a_choice_names_the_others() -> None:
    with pytest.raises(ValueError, match=r"`combination` must be one of \['mean', 'sum'\], got 'max'"):
        check_choice(("mean", "sum"), combination="max")
