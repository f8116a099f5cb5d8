import numpy as np
import pytest
import torch

from graphrerank.inference.arrays import to_floats, to_integers


@pytest.mark.parametrize(
    "given",
    [
        [1, 2],
        (1.0, 2.0),
        [np.float32(1), 2],
        [torch.tensor(1.0), torch.tensor(2.0)],
        np.array([1, 2], dtype=np.uint8),
        np.array([1, 2], dtype=np.float16),
        torch.tensor([1, 2]),
        torch.tensor([1, 2], dtype=torch.bfloat16),
        torch.tensor([1.0, 2.0], requires_grad=True),
        np.array([1.0, 9.0, 2.0])[::2],
    ],
)
def test_numbers_of_any_kind(given) -> None:
    found = to_floats("scores", given, (2,))
    assert found.dtype == torch.float32
    assert found.tolist() == [1.0, 2.0]


def test_a_copy_is_returned() -> None:
    given = np.array([1.0, 2.0], dtype=np.float32)
    to_floats("scores", given, (2,))[0] = 7
    assert given.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([[1, 2], [3]], "`v` must be an array of numbers"),
        (["1", "2"], "`v` must hold numbers"),
        ([True, False], "`v` must hold numbers, got the type bool"),
        ([1j, 2], "`v` must hold numbers, got the type complex128"),
        (np.zeros(3), r"`v` must be of shape \[2\], got \[3\]"),
        ([0, float("-inf")], "`v` must be finite .* got -inf at place 1"),
    ],
)
def test_what_is_no_such_array_is_refused(given, message) -> None:
    with pytest.raises(ValueError, match=message):
        to_floats("v", given, (2,))


def test_integers() -> None:
    assert to_integers("edges", [], (None, 2)).shape == (0, 2)
    assert to_integers("edges", np.array([[0, 1]], dtype=np.uint16), (None, 2)).tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="`edges` must hold integers, got the type float32"):
        to_integers("edges", torch.ones(1, 2), (None, 2))
