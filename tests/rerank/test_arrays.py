import numpy as np
import pytest
import torch

from graphrerank.rerank.arrays import to_floats, to_integers


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        ["1", "2e0"],
        [np.float32(1), 2],
        [torch.tensor(1.0), torch.tensor(2.0)],
        np.array([1, 2], dtype=np.uint8),
        torch.tensor([1, 2], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0], requires_grad=True),
        np.array([1.0, 9.0, 2.0])[::2],
    ],
)
def test_numbers_of_any_kind_are_copied(given) -> None:
    found = to_floats("scores", given, (2,))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 2.0]
    found[0] = 7
    assert float(given[0]) == 1


@pytest.mark.parametrize(
    ("read", "given", "message"),
    [
        (to_floats, [[1, 2], [3]], "`v` must be an array of numbers"),
        (to_floats, ["1", "x"], "`v` must contain numbers: .*'x'"),
        (to_integers, ["1", "2.5"], "`v` must contain integers: .*'2.5'"),
        (to_floats, [True, False], "`v` must contain numbers, got dtype bool"),
        (to_floats, [1j, 2], "`v` must contain numbers, got dtype complex128"),
        (to_floats, np.zeros(3), r"`v` must have shape \[2\], got \[3\]"),
        (to_floats, [0, float("-inf")], "`v` must be finite .* got -inf at index 1"),
        (to_integers, torch.ones(2), "`v` must contain integers, got dtype float32"),
    ],
)
def test_what_is_no_such_array_is_refused(read, given, message) -> None:
    with pytest.raises(ValueError, match=message):
        read("v", given, (2,))
